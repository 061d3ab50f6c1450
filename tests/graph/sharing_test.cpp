// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/sharing.h"

#include <gtest/gtest.h>

#include "kerf/graph/text.h"

namespace kerf {
namespace {

// `lines` follow %h, made by a node, and its copy or alias %y, made by node 1.
bool is_seen(const std::string& lines, const std::string& made = "%y: f32[B, 4] = ") {
  const Graph graph = parse_graph(
      "kerf-graph 1.0\nbatch 2\ninput %x: f32[B, 4] = \"args.0\"\n"
      "%h: f32[B, 4] = aten.neg.default(%x)\n" +
      made + "aten.contiguous.default(~%h)\n" + lines);
  return sharing_is_seen(graph.data(), NodeId(1));
}

TEST(Sharing, IsSeenByAReadOfTheOneAfterAWriteToTheOther) {
  EXPECT_TRUE(
      is_seen("%w: f32[B, 4] in %y = aten.relu_.default(&~%y)\n"
              "%z: f32[B, 4] = aten.neg.default(%h)\noutput \"z\" = %z\n"));
  EXPECT_TRUE(
      is_seen("%w: f32[B, 4] in %h = aten.relu_.default(&~%h)\n"
              "%z: f32[B, 4] = aten.neg.default(%y)\noutput \"z\" = %z\n"));
}

TEST(Sharing, IsTheSameWhetherItWasTracedAsACopyOrNot) {
  const std::string read = "%z: f32[B, 4] = aten.neg.default(%h)\noutput \"z\" = %z\n";
  const std::string alias = "%y: f32[B, 4] in %h = ";
  EXPECT_TRUE(is_seen("%w: f32[B, 4] in %h = aten.relu_.default(&~%y)\n" + read, alias));
  EXPECT_FALSE(is_seen(read, alias));
}

TEST(Sharing, IsNotSeenWhereTheOtherIsDone) {
  EXPECT_FALSE(is_seen("%w: f32[B, 4] in %y = aten.relu_.default(&~%y)\noutput \"w\" = %w\n"));
  // Read before the write, not after it.
  EXPECT_FALSE(
      is_seen("%z: f32[B, 4] = aten.neg.default(%h)\n"
              "%w: f32[B, 4] in %y = aten.relu_.default(&~%y)\n"
              "output \"w\" = %w\noutput \"z\" = %z\n"));
  EXPECT_FALSE(is_seen("%z: f32[B, 4] = aten.add.Tensor(%h, %y)\noutput \"z\" = %z\n"));
}

TEST(Sharing, IsSeenThroughViews) {
  EXPECT_TRUE(
      is_seen("%v: f32[B, 2, 2] in %y = aten.view.default(~%y, [B, 2, 2])\n"
              "%t: f32[4, B]{1, 4} in %h = aten.t.default(~%h)\n"
              "%w: f32[B, 2, 2] in %y = aten.relu_.default(&~%v)\n"
              "%z: f32[4, B] = aten.neg.default(%t)\noutput \"z\" = %z\n"));
}

TEST(Sharing, IsSeenByWhoeverHoldsInputsAndResults) {
  EXPECT_TRUE(is_seen("%w: f32[B, 4] in %y = aten.relu_.default(&~%y)\noutput \"h\" = %h\n"));
  const Graph of_input = parse_graph(
      "kerf-graph 1.0\nbatch 2\ninput %x: f32[B, 4] = \"args.0\"\n"
      "%y: f32[B, 4] in %x = aten.contiguous.default(~%x)\n"
      "%w: f32[B, 4] in %x = aten.relu_.default(&~%y)\noutput \"w\" = %w\n");
  EXPECT_TRUE(sharing_is_seen(of_input.data(), NodeId(0)));
}

TEST(Strides, DecideWhereACopyIsSeenAndThroughWhatKeepsThem) {
  const Graph graph = parse_graph(
      "kerf-graph 1.0\nbatch 2\n"
      "input %x: f32[B, 4] = \"args.0\"\n"
      "input %u: f32[B, 4] = \"args.1\"\n"
      "weight @w: f32[4, 4] = parameter \"w\"\n"
      "%h: f32[B, 4] = aten.neg.default(%x)\n"
      "%l: f32[B, 4] = aten.linear.default(%u, @w)\n"
      "%s: f32[B, 4] = aten.add.Tensor(%h, %l)\n"
      "%v: f32[4*B] in %s = aten.view.default(~%s, [4*B])\n"
      "%y: f32[4*B] in %s = aten.reshape.default(~%s, [4*B])\n"
      "%w1: f32[4*B] in %s = aten.relu_.default(&~%y)\n"
      "%q: f32[4*B] in %s = aten.reshape.default(~%s, [4*B])\n"
      "%z: f32[4*B] = aten.add.Tensor(%v, %q)\noutput \"z\" = %z\n");
  const std::vector<NodeId> decided = nodes_that_strides_decide(graph.data());
  // Neither the view, which never copies, nor what comes after the last write.
  EXPECT_EQ(decided, std::vector<NodeId>{NodeId(4)});
  const std::vector<NodeId> reached = reached_by_strides(graph.data(), decided);
  const auto reaches = [&](ValueId id) { return reached[id.index()].valid(); };
  EXPECT_TRUE(reaches(graph.inputs()[0].value));
  EXPECT_FALSE(reaches(graph.inputs()[1].value));  // a linear layer lays out its own result
  EXPECT_FALSE(reaches(graph.outputs()[0].leaf.find<ValueId>()[0]));
}

}  // namespace
}  // namespace kerf
