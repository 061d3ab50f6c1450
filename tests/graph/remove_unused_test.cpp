// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/remove_unused.h"

#include <gtest/gtest.h>

#include "kerf/graph/text.h"
#include "tests/graph/captured.h"

namespace kerf {
namespace {

std::string kept(const std::string& lines) {
  const Graph graph = remove_unused(
      parse_graph("kerf-graph 1.0\nbatch 2\ninput %x: f32[B, 4] = \"args.0\"\n" + lines).data());
  std::string names;
  for (const Node& node : graph.nodes()) names += node.name;
  return names;
}

TEST(UnusedNodes, GoWithAllThatOnlyTheyUse) {
  EXPECT_EQ(kept("%a: f32[B, 4] = aten.relu.default(%x)\n"
                 "%b: f32[B, 4] = aten.relu.default(%a)\n"
                 "%c: f32[B, 4] = aten.neg.default(%x)\n"
                 "%d: f32[B, 4] = aten.neg.default(%c)\n"
                 "output \"y\" = %c\n"),
            "c");
}

TEST(UnusedNodes, StayWhereTheyHaveAnEffect) {
  EXPECT_EQ(kept("%a: f32[B, 4] in %x = aten.relu_.default(&~%x)\n"
                 "%b: f32[B, 4] = aten.bernoulli.default(%x) ; random\n"
                 "%c: f32[B, 4] = my.log.default(%x)\n"
                 "%d: f32[B, 4] = aten.neg.default(%x)\n"
                 "output \"y\" = %x\n"),
            "abc");
}

TEST(UnusedNodes, LeaveTheOthersAsTheyWere) {
  const Graph graph = parse_graph(
      "kerf-graph 1.0\nbatch 2\ninput %x: f32[B, 4] = \"args.0\"\n"
      "%a: f32[B, 4] = aten.relu.default(%x)\n"
      "output \"y\" = %a\n");
  EXPECT_EQ(remove_unused(graph.data()), graph);
}

TEST(UnusedNodes, GoAmongCapturedCallsWithTheChecksOfExport) {
  Captured calls = captured(
      "%a: f32[B, 4] = aten.neg.default(%x)\n"
      "%b: bool[] = aten.all.default(%a)\n"
      "() = aten._assert_async.msg(%b, \"all\") ; name=\"check\"\n"
      "output \"y\" = %a\n");
  remove_unused(calls);
  ASSERT_EQ(calls.data.nodes.size(), 1U);
  EXPECT_EQ(calls.numbers, std::vector<std::size_t>{0});
}

}  // namespace
}  // namespace kerf
