// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Order edges, glue, reads and writes, case by case. That they are enough is shown in
// staged_semantics_test.cpp.
#include <gtest/gtest.h>

#include <string>

#include "kerf/graph/text.h"

namespace kerf {
namespace {

Graph text_graph(const std::string& lines) { return parse_graph("kerf-graph 1.0\n" + lines); }

std::string order(const Graph& graph) {
  std::string out;
  for (const Edge& edge : graph.order_edges()) {
    out += (out.empty() ? "" : ", ") + graph.node(edge.from).name + ">" + graph.node(edge.to).name;
  }
  return out;
}

std::string glue(const Graph& graph) {
  std::string out;
  for (const auto& group : graph.glued()) {
    std::string names;
    for (const NodeId id : group) names += (names.empty() ? "" : " ") + graph.node(id).name;
    out += (out.empty() ? "" : " | ") + names;
  }
  return out;
}

std::string names(const Graph& graph, std::span<const NodeId> nodes) {
  std::string out;
  for (const NodeId id : nodes) out += (out.empty() ? "" : " ") + graph.node(id).name;
  return out;
}

// ---- order
// ----------------------------------------------------------------------------------------

TEST(OrderEdges, AreNotNeededWithoutWrites) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%a: f32[4] = op(%x)
%v: f32[4] in %a = op.view(%a)
%b: f32[4] = op(%v)
)");
  EXPECT_EQ(order(graph), "");
  EXPECT_EQ(glue(graph), "");
}

TEST(OrderEdges, PutAReaderBeforeTheNextWriter) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%a: f32[4] = op.add(%h, 1)
%r: f32[4] in %h = op.relu_(&%h)
)");
  EXPECT_EQ(order(graph), "a>r");
  EXPECT_EQ(glue(graph), "") << "a read the old content, and nobody else uses an old name";
}

TEST(OrderEdges, PutAWriterBeforeItsReaders) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%r: f32[4] in %h = op.relu_(&%h)
%a: f32[4] = op.add(%h, 1)
%b: f32[4] = op.add(%r, 1)
)");
  EXPECT_EQ(order(graph), "r>a, r>b");
  EXPECT_EQ(glue(graph), "r a") << "a reads the new content by the old name";
}

TEST(OrderEdges, KeepWritersInSequence) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%a: f32[4] in %h = op.add_(&%h, %x)
%b: f32[4] in %h = op.mul_(&%a, %x)
%c: f32[4] in %h = op.add_(&%b, %x)
output "c" = %c
)");
  EXPECT_EQ(order(graph), "a>b, b>c");
  EXPECT_EQ(glue(graph), "") << "each uses the result of the one before: the chain may be cut";
}

TEST(OrderEdges, FollowWritesThroughViews) {
  const Graph graph = text_graph(R"(input %x: f32[2] = "args.0"
%base: f32[4] = op.zeros()
%s: f32[2] in %base + 8 = op.slice(%base)
%t: f32[2] in %base = op.slice(%base)
%before: f32[2] = op.neg(%t)
%c: f32[2] in %base + 8 = op.copy_(&%s, %x)
%after: f32[4] = op.neg(%base)
%own: f32[2] = op.neg(%c)
)");
  EXPECT_EQ(order(graph), "s>c, t>c, before>c, c>after, c>own");
  EXPECT_EQ(glue(graph), "c after");
}

TEST(OrderEdges, FollowWhatMayAlias) {
  const char* const lines = R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%u: f32[4] = op.reshape(~%h)
%a: f32[4] = op.neg(%h)
%w: f32[4] in %u = op.relu_(&%u)
)";
  EXPECT_EQ(order(text_graph(lines)), "u>w, a>w");
  EXPECT_EQ(glue(text_graph(lines)), "");
  const Graph later = text_graph(std::string(lines) + "%b: f32[4] = op.neg(%h)\n");
  EXPECT_EQ(order(later), "u>w, a>w, w>b");
  EXPECT_EQ(glue(later), "u w b") << "whether b sees the write is known where u is made";
}

TEST(OrderEdges, JoinEverythingAliasedInAChain) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%u: f32[4] = op.reshape(~%h)
%v: f32[4] = op.contiguous(~%u)
%other: f32[4] = op.reshape(~%x)
() = op.fill_(&%v) ; name="w"
)");
  const NodeId w = graph.find_node("w");
  EXPECT_EQ(graph.writes(w).size(), 3U) << "h, u and v, not x";
  EXPECT_EQ(graph.reads(w).size(), 3U);
  EXPECT_EQ(graph.reads(graph.find_node("u")).size(), 3U) << "what it reads may be what is written";
  EXPECT_EQ(graph.reads(graph.find_node("other")).size(), 1U) << "never written: itself";
  EXPECT_EQ(order(graph), "u>w, v>w");
}

TEST(OrderEdges, CountAScalarsReadToo) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%s: scalar f64 = op.item(%h)
%r: f32[4] in %h = op.relu_(&%h)
%t: scalar f64 = op.item(%r)
)");
  EXPECT_EQ(order(graph), "s>r, r>t");
}

TEST(OrderEdges, CanBeLeftOutToShowWhyTheyMustNot) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%a: f32[4] = op.neg(%h)
%r: f32[4] in %h = op.relu_(&%h)
)");
  const Graph without = Graph::freeze(graph.data(), false);
  EXPECT_EQ(order(without), "");
  EXPECT_EQ(without, graph);
  EXPECT_EQ(without.hash(), graph.hash());
}

TEST(Edges, OfBothKindsAreListedTogether) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%a: f32[4] = op.neg(%h)
%r: f32[4] in %h = op.relu_(&%h, %h, [%h, %x])
%b: f32[4] = op.neg(%r)
)");
  const NodeId r = graph.find_node("r");
  EXPECT_EQ(names(graph, graph.predecessors(r)), "h a");
  EXPECT_EQ(names(graph, graph.successors(r)), "b");
  EXPECT_EQ(names(graph, graph.successors(graph.find_node("h"))), "a r");
  EXPECT_EQ(graph.inputs_of(r).size(), 2U) << "distinct values";
  EXPECT_EQ(names(graph, graph.consumers(graph.inputs_of(r)[0])), "a r");
}

// ---- glue
// -------------------------------------------------------------------------------------------

TEST(Glue, HoldsEverythingThatTouchesAWrittenWeight) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
weight @mean: f32[4] = buffer "bn.running_mean"
weight @scale: f32[4] = parameter "bn.weight"
%a: f32[4] = op.neg(@mean)
%b: f32[4] = op.neg(@scale)
%n: f32[4] = op.batch_norm(%x, @scale, &@mean)
%m: f32[4] = op.neg(%n)
%c: f32[4] = op.neg(@mean)
)");
  EXPECT_EQ(order(graph), "a>n, n>c");
  EXPECT_EQ(glue(graph), "a n c");
  EXPECT_TRUE(graph.is_written(graph.value(graph.weights()[0].value).storage));
  EXPECT_FALSE(graph.is_written(graph.value(graph.weights()[1].value).storage));
}

TEST(Glue, HoldsEverythingThatTouchesAWrittenInput) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%v: f32[2] in %x + 8 = op.slice(%x)
%y: f32[4] = op.neg(%x)
%w: f32[2] in %x + 8 = op.relu_(&%v)
%z: f32[2] = op.neg(%w)
%q: f32[2] = op.neg(%z)
)");
  EXPECT_EQ(glue(graph), "v y w z") << "z reads the input's own memory";
}

TEST(Glue, HoldsTiedWeightsWhenOneIsWritten) {
  const Graph graph = text_graph(R"(weight @w: f32[4] = parameter "a"
weight @p: f32[2] in @w = parameter "b"
%a: f32[2] = op.neg(@p)
() = op.fill_(&@w) ; name="w"
)");
  EXPECT_EQ(glue(graph), "a w");
}

TEST(Glue, HoldsAResultReadThroughAnOlderName) {
  const char* const lines = R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%r: f32[4] in %h = op.relu_(&%h)
)";
  EXPECT_EQ(glue(text_graph(std::string(lines) + "output \"r\" = %r\n")), "");
  EXPECT_EQ(glue(text_graph(std::string(lines) + "output \"h\" = %h\n")), "h r");
  EXPECT_EQ(glue(text_graph(std::string(lines) + "output \"l\" = [none, [%h]]\n")), "h r");
}

TEST(Glue, HoldsAResultThatWasTakenBeforeTheWrite) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%v: f32[4] in %h = op.view(%h)
%r: f32[4] in %h = op.relu_(&%h)
%u: f32[4] in %h = op.view(%r)
output "v" = %v
output "u" = %u
)");
  EXPECT_EQ(glue(graph), "v r");
}

TEST(Glue, LetsViewsOfAResultBeCut) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%r: f32[4] in %h = op.relu_(&%h)
%v: f32[2] in %h = op.slice(%r)
%w: f32[1] in %h = op.slice(%v)
%a: f32[1] = op.neg(%w)
output "a" = %a
)");
  EXPECT_EQ(glue(graph), "");
}

TEST(Glue, HoldsAViewOfAnOlderNameButNotItsReaders) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%r: f32[4] in %h = op.relu_(&%h)
%v: f32[4] in %h = op.view(%h)
%a: f32[4] = op.neg(%v)
)");
  EXPECT_EQ(glue(graph), "r v") << "v is taken where the write is, and carries it to a";
}

TEST(Glue, KeepsIndependentGroupsOfOneMemoryApart) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%w1: f32[4] in %h = op.add_(&%h)
%a: f32[4] = op.neg(%h)
%w2: f32[4] in %h = op.add_(&%w1)
%b: f32[4] = op.neg(%w1)
)");
  EXPECT_EQ(glue(graph), "w1 a | w2 b");
}

TEST(Glue, HoldsAWriterWithoutAResultToItsReaders) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
() = op.fill_(&%h) ; name="w"
%a: f32[4] = op.neg(%h)
)");
  EXPECT_EQ(glue(graph), "w a");
}

TEST(Glue, TakesInWhatLiesBetween) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%h: f32[4] = op.linear(%x)
%w: f32[4] in %h = op.relu_(&%h)
%m: f32[4] = op.neg(%w)
%free: f32[4] = op.neg(%w)
%a: f32[4] = op.add(%h, %m)
output "free" = %free
)");
  EXPECT_EQ(glue(graph), "w m a") << "m needs w and is needed by a";
}

TEST(Glue, JoinsGroupsThatNeedEachOther) {
  const Graph graph = text_graph(R"(input %x: f32[4] = "args.0"
%g: f32[4] = op.linear(%x)
%h: f32[4] = op.linear(%x)
() = op.fill_(&%g) ; name="wg"
() = op.fill_(&%h) ; name="wh"
%a: f32[4] = op.neg(%g)
%b: f32[4] = op.neg(%h)
() = op.both_(%a, %h) ; name="ch"
() = op.both_(%b, %g) ; name="cg"
)");
  EXPECT_EQ(glue(graph), "wg wh a b ch cg");
}

TEST(Glue, IsQuickOnAMemoryThatIsWrittenAgainAndAgain) {
  // A residual stream updated in place, with old names read: every pair would be 10^10 looks.
  std::string lines = "input %x: f32[4] = \"args.0\"\n%h0: f32[4] = op.linear(%x)\n";
  const int count = 50000;
  for (int i = 1; i <= count; ++i) {
    lines += "%h" + std::to_string(i) + ": f32[4] in %h0 = op.add_(&%h" + std::to_string(i - 1) +
             ", %x)\n";
  }
  EXPECT_EQ(text_graph(lines).glued().size(), 0U);
  lines += "%a: f32[4] = op.neg(%h" + std::to_string(count / 2) + ")\n";
  const Graph graph = text_graph(lines);
  ASSERT_EQ(graph.glued().size(), 1U);
  EXPECT_EQ(graph.glued()[0].size(), count / 2 + 1U);
}

}  // namespace
}  // namespace kerf
