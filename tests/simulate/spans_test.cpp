// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Spans of small graphs against bytes and flops worked out by hand.
#include "kerf/simulate/spans/span_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/base/error.h"
#include "kerf/graph/text.h"

namespace kerf {
namespace {

using testing::HasSubstr;

// The input, then a span for every node, each of which is given and returns what its node does.
std::vector<Span> span_per_node(const Graph& graph) {
  std::vector<Span> spans;
  for (const GraphInput& input : graph.inputs()) {
    Span span;
    span.name = graph.value(input.value).name;
    span.kind = "placeholder";
    span.outputs = {input.value};
    spans.push_back(span);
  }
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    Span span;
    span.name = graph.nodes()[n].name;
    span.kind = "call_module";
    span.first = NodeId{n};
    span.last = NodeId{n + 1};
    for (const ValueId id : graph.inputs_of(NodeId{n})) {
      const bool is_weight = graph.value(id).origin == Origin::weight;
      (is_weight ? span.weights : span.inputs).push_back(id);
    }
    span.outputs = graph.nodes()[n].outputs;
    spans.push_back(span);
  }
  return spans;
}

// Accumulated, output and temporary bytes, of parameters, of gradients at most.
std::vector<std::int64_t> set_view(const SpanCost& cost) {
  return {cost.accumulate.count, cost.output.count, cost.temp.count, cost.param.count,
          cost.backward.count};
}

Graph mlp(const std::string& second = "") {
  return parse_graph(R"(kerf-graph 1.0
graph "mlp" training
input %x: f32[8, 16] = "args.0"
weight @v: f32[32, 16] grad = parameter "v"
weight @b: f32[32] grad = parameter "b"
weight @w: f32[4, 32] grad = parameter "w"
weight @c: f32[4] grad = parameter "c"
%a: f32[8, 32] grad = aten.linear.default(%x, @v, @b)
%h: f32[8, 32] grad = aten.relu.default(%a)
%y: f32[8, 4] grad = aten.linear.default(%h, @w, @c)
)" + second + R"(output "y" = %y
)");
}

TEST(Spans, HaveTheBytesAndFlopsOfAPerceptron) {
  const Graph graph = mlp();
  const SpanProfile profile = profile_spans(graph, span_per_node(graph), {.kind = "cpu"});
  ASSERT_EQ(profile.costs.size(), 4U);
  using Row = std::vector<std::int64_t>;
  EXPECT_EQ(set_view(profile.costs[0]), (Row{512, 512, 0, 0, 0}));
  EXPECT_EQ(set_view(profile.costs[1]), (Row{512, 0, 1024, 2176, 512}));
  EXPECT_EQ(set_view(profile.costs[2]), (Row{1536, 0, 0, 0, 1024}));
  EXPECT_EQ(set_view(profile.costs[3]), (Row{1536, 0, 128, 528, 1024}));
  // The input needs no gradient: the first product has one in backward, the second has two.
  EXPECT_EQ(profile.costs[1].fwd_mac, 8 * 16 * 32);
  EXPECT_EQ(profile.costs[1].bwd_mac, 8 * 16 * 32);
  EXPECT_EQ(profile.costs[3].bwd_mac, 2 * 8 * 32 * 4);
  EXPECT_EQ(profile.totals.fwd_flop, 2 * (8 * 16 * 32 + 8 * 32 * 4) + 8 * 32);
  EXPECT_EQ(profile.totals.saved.count, 1536);
  EXPECT_EQ(profile.totals.param.count, 2176 + 528);
  EXPECT_TRUE(profile.unknown_ops.empty());
}

TEST(Spans, SayWhatEachKeepsByItself) {
  const Graph graph = mlp();
  const SpanProfile profile = profile_spans(graph, span_per_node(graph), {.kind = "cpu"});
  EXPECT_EQ(profile.costs[1].fwd_in.count, 512);
  EXPECT_EQ(profile.costs[1].fwd_out.count, 0);
  EXPECT_EQ(profile.costs[1].bwd_out.count, 2176);  // of the weights: the input needs none
  EXPECT_EQ(profile.costs[2].fwd_in.count, 0);
  EXPECT_EQ(profile.costs[2].fwd_out.count, 1024);
  EXPECT_EQ(profile.costs[2].bwd_out.count, 1024);
  EXPECT_EQ(profile.costs[3].fwd_in.count, 1024);
  EXPECT_EQ(profile.costs[3].bwd_out.count, 1024 + 528);
}

TEST(Spans, OfACheckpointedRegionKeepWhatEntersIt) {
  const Graph graph = mlp();
  SpanSettings settings{.kind = "cpu"};
  settings.regions = {0, 0, 0};
  const SpanProfile profile = profile_spans(graph, span_per_node(graph), settings);
  EXPECT_EQ(profile.totals.saved.count, 512);
  EXPECT_EQ(profile.costs[3].fwd_in.count, 1024);  // by itself: as if nothing were computed again
}

TEST(Spans, TakeAUsersRuleForTheirFlops) {
  const Graph graph = mlp();
  SpanSettings settings{.kind = "cpu"};
  settings.given[1] = {7, 9};
  settings.given_nodes[1] = {100, 200};
  const SpanProfile profile = profile_spans(graph, span_per_node(graph), settings);
  EXPECT_EQ(profile.costs[1].fwd_flop, 7);
  EXPECT_EQ(profile.costs[1].bwd_flop, 9);
  EXPECT_EQ(profile.costs[2].fwd_flop, 100);
  EXPECT_EQ(profile.totals.fwd_flop, 7 + 100 + 2 * 8 * 32 * 4);
}

TEST(Spans, ListOperatorsWithoutAFormula) {
  const Graph graph = mlp("%z: f32[8, 4] grad = fused.my_op.default(%y)\n");
  const SpanProfile profile = profile_spans(graph, span_per_node(graph), {.kind = "cpu"});
  ASSERT_EQ(profile.unknown_ops.size(), 1U);
  EXPECT_EQ(profile.unknown_ops[0].op, "fused.my_op.default");
  EXPECT_EQ(profile.unknown_ops[0].count, 1);
  EXPECT_DOUBLE_EQ(profile.unknown_ops[0].share, 0.25);
  EXPECT_FALSE(profile.costs[4].known);
  EXPECT_TRUE(profile.costs[3].known);
}

TEST(Spans, CountAStorageOnceHoweverManyViewsAreKept) {
  const Graph graph = parse_graph(R"(kerf-graph 1.0
graph "halves" training
input %x: f32[8, 16] = "args.0"
weight @v: f32[16, 16] grad = parameter "v"
%a: f32[8, 16] grad = aten.linear.default(%x, @v)
%l: f32[8, 8]{16, 1} in %a grad = aten.slice.Tensor(~%a, 1, 0, 8)
%r: f32[8, 8]{16, 1} in %a + 32 grad = aten.slice.Tensor(~%a, 1, 8, 16)
%p: f32[8, 8] grad = aten.mul.Tensor(%l, %r)
output "p" = %p
)");
  const SpanProfile profile = profile_spans(graph, span_per_node(graph), {.kind = "cpu"});
  EXPECT_EQ(profile.costs[1].output.count, 512);
  EXPECT_EQ(profile.costs[2].output.count + profile.costs[2].temp.count, 0);
  EXPECT_EQ(profile.totals.saved.count, 512 + 512);
}

TEST(Spans, ThatAreNotThoseOfTheGraphAreRefused) {
  const Graph graph = mlp();
  std::vector<Span> spans = span_per_node(graph);
  spans.pop_back();
  EXPECT_THAT([&] { profile_spans(graph, spans); },
              testing::ThrowsMessage<Error>(HasSubstr("spans of 2 nodes for a graph of 3")));
  spans = span_per_node(graph);
  spans[1].last = NodeId{2};
  EXPECT_THAT([&] { profile_spans(graph, spans); },
              testing::ThrowsMessage<Error>(HasSubstr("starts at node 1; expected 2")));
}

}  // namespace
}  // namespace kerf
