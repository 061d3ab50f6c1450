// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The executor is safe by itself: a plan whose stages wait for each other would never end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/base/error.h"
#include "kerf/graph/text.h"
#include "kerf/runtime/executor.h"
#include "kerf/runtime/fake_backend.h"
#include "tests/runtime/hand_plan.h"

namespace kerf {
namespace {

using ::testing::HasSubstr;

Graph chain() {
  return parse_graph(R"(kerf-graph 1.0
batch 4
input %x: f32[B, 4] = "args.0"
%a: f32[B, 4] = aten.relu.default(%x)
%b: f32[B, 4] = aten.relu.default(%a)
%c: f32[B, 4] = aten.relu.default(%b)
output "y" = %c
)");
}

// Two names of one memory, and a write: the last node reads the older name.
Graph glued() {
  return parse_graph(R"(kerf-graph 1.0
batch 4
input %x: f32[B, 4] = "args.0"
%a: f32[B, 4] = aten.relu.default(%x)
%s: f32[B, 2]{4, 1} in %a = aten.slice.Tensor(~%a, 1, 0, 2)
%w: f32[B, 2]{4, 1} in %a = aten.zero_.default(&%s)
%y: f32[B, 4] = aten.relu.default(%a)
output "y" = %y
)");
}

std::string refusal(const Graph& graph, const Plan& plan) {
  FakeBackend backend(plan);
  try {
    Executor executor(graph, plan, backend);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_plan);
    return error.what();
  }
  return "it was taken";
}

TEST(AnExecutor, RefusesStagesThatWaitForEachOther) {
  const Graph graph = chain();
  const std::vector<std::string> devices{"cpu:0", "cpu:1"};
  EXPECT_THAT(refusal(graph, hand_plan(graph, {{"a", "c"}, {"b"}}, {0, 1}, devices)),
              HasSubstr("in stage 0 needs node 'b'"));
  EXPECT_THAT(refusal(graph, hand_plan(graph, {{"b", "c"}, {"a"}}, {0, 1}, devices)),
              HasSubstr("an order in which they can run"));
}

TEST(AnExecutor, RefusesGluedNodesInTwoStages) {
  const Graph graph = glued();
  ASSERT_FALSE(graph.glued().empty());
  const Plan plan = hand_plan(graph, {{"a", "s", "w"}, {"y"}}, {0, 1}, {"cpu:0", "cpu:1"});
  EXPECT_THAT(refusal(graph, plan), HasSubstr("see each other's writes"));
}

TEST(AnExecutor, RefusesNodesAndDevicesThatAreNotThere) {
  const Graph graph = chain();
  const Plan good = hand_plan(graph, {{"a"}, {"b", "c"}}, {0, 1}, {"cpu:0", "cpu:1"});
  const auto after = [&](auto&& change) {
    Plan plan = good;
    change(plan);
    return refusal(graph, plan);
  };
  EXPECT_THAT(after([](Plan& p) { p.stages[1].nodes.pop_back(); }), HasSubstr("is in no stage"));
  EXPECT_THAT(after([](Plan& p) { p.stages[1].nodes.push_back(NodeId{7}); }),
              HasSubstr("each node of the graph once"));
  EXPECT_THAT(
      after([](Plan& p) { p.stages[1].nodes.insert(p.stages[1].nodes.begin(), NodeId{0}); }),
      HasSubstr("each node of the graph once"));
  EXPECT_THAT(after([](Plan& p) { std::swap(p.stages[1].nodes[0], p.stages[1].nodes[1]); }),
              HasSubstr("out of order"));
  EXPECT_THAT(after([](Plan& p) { p.stages[1].device = DeviceId{5}; }),
              HasSubstr("a device of the plan's cluster"));
}

}  // namespace
}  // namespace kerf
