// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/program.h"

#include <gtest/gtest.h>

#include "kerf/base/error.h"
#include "kerf/graph/text.h"
#include "tests/runtime/hand_plan.h"

namespace kerf {
namespace {

const char* const kSkip = R"(kerf-graph 1.0
graph "skip"
batch 4
input %x: f32[B, 8] = "args.0"
weight @w: f32[8, 8] = parameter "w"
%a: f32[B, 8] = aten.relu.default(%x)
%b: f32[B, 8] = aten.linear.default(%a, @w)
%unused: f32[B, 8] = aten.neg.default(%b)
%c: f32[B, 8] = aten.linear.default(%b, @w)
%d: f32[B, 8] = aten.add.Tensor(%c, %a)
output "y" = %d
)";

std::vector<std::string> names(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<std::string> out;
  for (const ValueId id : ids) out.push_back(graph.value(id).name);
  return out;
}

using Names = std::vector<std::string>;

TEST(AProgram, SendsSkipsFromAnyStageToAnyLaterStage) {
  const Graph graph = parse_graph(kSkip);
  const Plan plan =
      hand_plan(graph, {{"a"}, {"b", "unused"}, {"c", "d"}}, {0, 1, 0}, {"cpu:0", "cpu:1"});
  const auto programs = compile_programs(graph, plan);
  ASSERT_EQ(programs.size(), 3U);
  EXPECT_EQ(names(graph, programs[0].inputs), Names({"x"}));
  ASSERT_EQ(programs[0].sends.size(), 1U);
  EXPECT_EQ(programs[0].sends[0].to, (std::vector<StageId>{StageId(1), StageId(2)}));
  EXPECT_EQ(names(graph, programs[2].received), Names({"a", "b"}));
  EXPECT_EQ(programs[2].senders, (std::vector<StageId>{StageId(0), StageId(1)}));
  EXPECT_EQ(names(graph, programs[2].weights), Names({"w"}));
  ASSERT_EQ(programs[2].sends.size(), 1U);
  EXPECT_TRUE(programs[2].sends[0].to_caller);
}

TEST(AProgram, DropsValuesAtTheirLastUseAndUnusedOnesAtOnce) {
  const Graph graph = parse_graph(kSkip);
  const Plan plan = hand_plan(graph, {{"a", "b", "unused", "c", "d"}}, {0}, {"cpu:0"});
  const Program program = compile_programs(graph, plan).at(0);
  EXPECT_EQ(names(graph, program.steps[0].dead), Names({"x"}));
  EXPECT_EQ(names(graph, program.steps[1].dead), Names());
  EXPECT_EQ(names(graph, program.steps[2].dead), Names({"unused"}));
  EXPECT_EQ(names(graph, program.steps[3].dead), Names({"b"}));
  EXPECT_EQ(names(graph, program.steps[4].dead), Names({"a", "c"}));
}

TEST(AProgram, CopiesReceivedMemoryThatItWrites) {
  const Graph graph = parse_graph(R"(kerf-graph 1.0
batch 2
input %x: f32[B, 4] = "args.0"
%a: f32[B, 4] = aten.add.Tensor(%x, 1)
%b: f32[B, 4] in %a = aten.relu_.default(&~%a)
output "y" = %b
)");
  const Plan plan = hand_plan(graph, {{"a"}, {"b"}}, {0, 1}, {"cpu:0", "cpu:1"});
  const auto programs = compile_programs(graph, plan);
  EXPECT_TRUE(programs[0].copied.empty());
  ASSERT_EQ(programs[1].copied.size(), 1U);
  EXPECT_EQ(names(graph, programs[1].copied[0]), Names({"a"}));
}

TEST(AProgram, RefusesAPlanForAnotherGraph) {
  const Graph graph = parse_graph(kSkip);
  Plan plan = hand_plan(graph, {{"a", "b", "unused", "c", "d"}}, {0}, {"cpu:0"});
  plan.graph_hash = "0123456789abcdef0123456789abcdef";
  try {
    compile_programs(graph, plan);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_plan);
    EXPECT_NE(std::string(error.what()).find("0123456789abcdef"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(graph.hash()), std::string::npos);
  }
}

TEST(AProgram, RefusesAPlanThatLeavesANodeOut) {
  const Graph graph = parse_graph(kSkip);
  const Plan plan = hand_plan(graph, {{"a", "b", "c", "d"}}, {0}, {"cpu:0"});
  EXPECT_THROW(compile_programs(graph, plan), Error);
}

}  // namespace
}  // namespace kerf
