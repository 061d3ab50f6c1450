// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/subgraph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/graph/text.h"

namespace kerf {
namespace {

// Two blocks of a linear layer and an activation, with a residual around each, and a head.
constexpr std::string_view kModel = R"(kerf-graph 1.1
graph "m"
batch 2
scope 1 "h.0" "Block"
scope 2 "h.1" "Block"
scope 3 "head" "Linear"
input %x: f32[B, 4] = "args.0"
weight @w0: f32[4, 4] = parameter "h.0.w"
weight @w1: f32[4, 4] = parameter "h.1.w"
weight @w2: f32[4, 4] = parameter "head.w"
%a0: f32[B, 4] = aten.linear.default(%x, @w0) ; scope=1
%b0: f32[B, 4] = aten.add.Tensor(%a0, %x, alpha=1) ; scope=1
%a1: f32[B, 4] = aten.linear.default(%b0, @w1) ; scope=2
%b1: f32[B, 4] = aten.add.Tensor(%a1, %b0, alpha=1) ; scope=2
%y: f32[B, 4] = aten.linear.default(%b1, @w2) ; scope=3
output "0" = %y
)";

std::vector<NodeId> named(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<NodeId> out;
  for (const std::string& name : names) out.push_back(graph.find_node(name));
  return out;
}

std::vector<std::string> names(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<std::string> out;
  for (const ValueId id : values) out.push_back(graph.value(id).name);
  return out;
}

// The model with a part of its text replaced.
std::string changed(std::string_view from, std::string_view to) {
  std::string text(kModel);
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string signature_of(std::string_view text, const std::vector<std::string>& nodes,
                         std::int64_t batch = 2) {
  const Graph graph = parse_graph(text);
  return signature(graph, named(graph, nodes), batch);
}

TEST(ASubgraph, TakesWhatItReadsAndGivesWhatOthersUse) {
  const Graph graph = parse_graph(kModel);
  const Border border = find_border(graph, named(graph, {"a1", "b1"}));
  EXPECT_THAT(names(graph, border.inputs), testing::ElementsAre("b0"));
  EXPECT_THAT(names(graph, border.weights), testing::ElementsAre("w1"));
  EXPECT_THAT(names(graph, border.outputs), testing::ElementsAre("b1"));
}

TEST(ASubgraph, IsAGraphOfItsOwn) {
  const Graph graph = parse_graph(kModel);
  const Graph part = subgraph(graph, named(graph, {"a1", "b1"}));
  ASSERT_EQ(part.num_nodes(), 2U);
  EXPECT_EQ(part.inputs().size(), 1U);
  EXPECT_EQ(part.weights().front().names.front(), "h.1.w");
  EXPECT_EQ(part.outputs().size(), 1U);
  EXPECT_EQ(part.node(NodeId(1)).name, "b1");
  EXPECT_EQ(part.value(part.inputs()[0].value).bytes(3).count, 48);
}

TEST(ASubgraph, GivesResultsOfTheModelAway) {
  const Graph graph = parse_graph(kModel);
  EXPECT_THAT(names(graph, find_border(graph, named(graph, {"y"})).outputs),
              testing::ElementsAre("y"));
}

TEST(ASubgraph, KeepsViewsOfOneMemoryTogether) {
  const Graph graph = parse_graph(R"(kerf-graph 1.1
graph "m"
input %x: f32[4] = "args.0"
%p: f32[4] = a.p.default(%x)
%v: f32[2] in %p = a.v.default(%p)
%w: f32[4] in %p = aten.relu_.default(&~%p)
%z: f32[2] = a.z.default(%v, %w)
output "0" = %z
)");
  const Graph part = subgraph(graph, named(graph, {"v", "w", "z"}));
  ASSERT_EQ(part.inputs().size(), 1U);
  EXPECT_EQ(part.value(part.inputs()[0].value).storage, part.value(ValueId(1)).storage);
  EXPECT_EQ(part.glued().size(), 1U) << "the reader of the view sees the write";
}

TEST(ASignature, IsTheSameForBlocksThatDoTheSame) {
  EXPECT_EQ(signature_of(kModel, {"a0", "b0"}), signature_of(kModel, {"a1", "b1"}));
}

TEST(ASignature, DiffersWithWhatIsDone) {
  const std::vector<std::string> block = {"a1", "b1"};
  const std::string plain = signature_of(kModel, block);
  EXPECT_NE(plain, signature_of(kModel, {"a1"}));
  EXPECT_NE(plain, signature_of(kModel, block, 3)) << "the batch";
  EXPECT_NE(plain, signature_of(changed("alpha=1", "alpha=2"), block)) << "a constant";
  EXPECT_NE(plain, signature_of(changed("add.Tensor", "sub.Tensor"), block)) << "an operator";
  EXPECT_NE(plain, signature_of(changed("f32", "f16"), block)) << "the dtype";
  EXPECT_NE(plain, signature_of(changed("parameter", "buffer"), block)) << "the kind of weight";
  EXPECT_NE(plain, signature_of(changed("(%b1, @w2)", "(%a1, @w2)"), block)) << "what it gives";
}

TEST(ASignature, KnowsNoNamesAndNoOtherPartsOfTheModel) {
  const std::vector<std::string> block = {"a1", "b1"};
  const std::string plain = signature_of(kModel, block);
  EXPECT_EQ(plain, signature_of(changed("h.1", "layer.one"), block));
  EXPECT_EQ(plain, signature_of(changed("\"Block\"", "\"Other\""), block));
  EXPECT_EQ(plain, signature_of(changed("%y: f32[B, 4]", "%y: f32[B, 4] "), block));
  EXPECT_EQ(signature_of(changed("B, 4", "2, 4"), block), plain) << "sizes at the batch count";
}

TEST(ASignature, OfABlockThatRunsAsPythonIsLikeNoOther) {
  constexpr std::string_view kOpaque = R"(kerf-graph 1.1
graph "m"
input %x: f32[4] = "args.0"
%p: f32[4] = opaque(%x)
%q: f32[4] = opaque(%p)
output "0" = %q
)";
  EXPECT_NE(signature_of(kOpaque, {"p"}), signature_of(kOpaque, {"q"}));
}

}  // namespace
}  // namespace kerf
