// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The backward of single operators, counted by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kerf/graph/text.h"
#include "kerf/profile/formula/op_cost.h"

namespace kerf {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

Graph step_of(const std::string& head, const std::string& nodes) {
  return parse_graph("kerf-graph 1.0\ngraph \"one\" training\nbatch 2\n" + head + nodes +
                     "\noutput \"y\" = %y\n");
}

BackwardCost cost_of_node(const Graph& graph, std::size_t node, bool host = true) {
  const Setting setting{2, host};
  const NodeId id{node};
  return backward_cost(graph, id, setting, op_cost(graph, id, setting), Gradients(graph));
}

// Of the last node, at batch 2.
BackwardCost backward_of(const std::string& head, const std::string& nodes, bool host = true) {
  const Graph graph = step_of(head, nodes);
  const BackwardCost cost = cost_of_node(graph, graph.num_nodes() - 1, host);
  EXPECT_TRUE(cost.known) << nodes;
  return cost;
}

double forward_macs_of(const std::string& head, const std::string& nodes, bool host = true) {
  const Graph graph = step_of(head, nodes);
  return op_cost(graph, NodeId{graph.num_nodes() - 1}, {2, host})->macs;
}

struct Macs {
  double inputs;
  double weights;
  friend bool operator==(const Macs&, const Macs&) = default;
};

Macs macs_of(const std::string& head, const std::string& nodes, bool host = true) {
  const BackwardCost cost = backward_of(head, nodes, host);
  return {cost.macs(false), cost.macs(true)};
}

std::string linear_head(const char* input, const char* weight) {
  return std::string("input %x: f32[B, 5, 16]") + input + " = \"args.0\"\nweight @w: f32[32, 16]" +
         weight + " = parameter \"w\"\nweight @b: f32[32]" + weight + " = parameter \"b\"\n";
}

constexpr double kLinearMacs = 2 * 5 * 16 * 32;

TEST(TheBackwardOfALinearLayer, IsOneProductForEachGradient) {
  const std::string node = "%y: f32[B, 5, 32] grad = aten.linear.default(%x, @w, @b)";
  EXPECT_EQ(macs_of(linear_head(" grad", " grad"), node), (Macs{kLinearMacs, kLinearMacs}));
  EXPECT_EQ(macs_of(linear_head("", " grad"), node), (Macs{0, kLinearMacs})) << "the first layer";
  EXPECT_EQ(macs_of(linear_head(" grad", ""), node), (Macs{kLinearMacs, 0})) << "frozen weights";
}

TEST(TheBackwardOfALinearLayer, MovesTheGradientTheOtherOperandAndTheResult) {
  const BackwardCost cost = backward_of(linear_head(" grad", " grad"),
                                        "%y: f32[B, 5, 32] grad = aten.linear.default(%x, @w, @b)");
  const Bytes x{2 * 5 * 16 * 4};
  const Bytes w{32 * 16 * 4};
  const Bytes y{2 * 5 * 32 * 4};
  EXPECT_EQ(cost.moved(false), y + w + x);
  EXPECT_EQ(cost.moved(true), (y + x + w) + (y + Bytes{32 * 4})) << "the weight, and the bias";
}

TEST(ABackward, IsNothingWithoutAGradient) {
  const std::string head = linear_head(" grad", " grad");
  EXPECT_THAT(
      backward_of(head, "%y: f32[B, 5, 32] grad = aten.linear.default(%x, @w) ; no_grad").kernels,
      IsEmpty());
  EXPECT_THAT(
      backward_of(linear_head("", ""), "%y: f32[B, 5, 32] = aten.linear.default(%x, @w)").kernels,
      IsEmpty());
}

TEST(ABackward, CountsATransposedWeightAmongTheWeights) {
  EXPECT_EQ(macs_of(linear_head(" grad", " grad"),
                    "%t: f32[16, 32]{1, 16} in @w grad = aten.t.default(~@w)\n"
                    "%y: f32[B, 5, 32] grad = aten.matmul.default(%x, %t)"),
            (Macs{kLinearMacs, kLinearMacs}));
}

TEST(ABackward, AddsGradientsOfOneValueInAllReadersButTheLast) {
  const std::string head = linear_head(" grad", "");
  const Graph graph = step_of(head,
                              "%a: f32[B, 5, 16] grad = aten.clone.default(%x)\n"
                              "%y: f32[B, 5, 16] grad = aten.add.Tensor(%a, %x)");
  const BackwardCost first = cost_of_node(graph, 0);
  ASSERT_THAT(first.kernels, SizeIs(1));
  EXPECT_EQ(first.kernels[0].cost.moved, Bytes{2 * 5 * 16 * 4} * 3);
  EXPECT_THAT(cost_of_node(graph, 1).kernels, IsEmpty());
}

TEST(ABackward, TakesMemoryThatGotAGradientByAWriteForDifferentiable) {
  const BackwardCost cost = backward_of("input %x: f32[B, 4] grad = \"args.0\"\n",
                                        "%z: f32[B, 4] = aten.zeros.default([B, 4])\n"
                                        "%c: f32[B, 4] in %z grad = aten.copy_.default(&~%z, %x)\n"
                                        "%y: f32[B, 4] grad = aten.tanh.default(%z)");
  EXPECT_THAT(cost.kernels, SizeIs(1));
}

TEST(TheBackwardOfProducts, IsTwoProducts) {
  const std::string two =
      "input %a: f32[B, 4, 6] grad = \"args.0\"\ninput %b: f32[B, 6, 8] grad = \"args.1\"\n";
  const double once = 2 * 4 * 6 * 8;
  const Macs both{2 * once, 0};
  EXPECT_EQ(macs_of(two, "%y: f32[B, 4, 8] grad = aten.bmm.default(%a, %b)"), both);
  EXPECT_EQ(macs_of(two, "%y: f32[B, 4, 8] grad = aten.matmul.default(%a, %b)"), both);
  EXPECT_EQ(macs_of(two, "%y: f32[B, 4, 8] grad = aten.einsum.default(\"bij,bjk->bik\", [%a, %b])"),
            both);
  EXPECT_EQ(macs_of(two + "input %c: f32[B, 4, 8] grad = \"args.2\"\n",
                    "%y: f32[B, 4, 8] grad = aten.baddbmm.default(%c, %a, %b)"),
            both);
  EXPECT_EQ(macs_of(two + "input %c: f32[4, 8] grad = \"args.2\"\n",
                    "%y: f32[4, 8] grad = aten.addbmm.default(%c, %a, %b)"),
            both);
  EXPECT_EQ(
      macs_of(two, "%y: f32[B, 4, B, 8] grad = aten.tensordot.default(%a, %b, [2], [1])").inputs,
      2 * 2 * once);
}

TEST(TheBackwardOfAProduct, SumsABroadcastOperandsGradient) {
  const BackwardCost cost = backward_of(
      "input %a: f32[B, 4, 6] = \"args.0\"\nweight @w: f32[1, 6, 8] grad = parameter \"w\"\n",
      "%y: f32[B, 4, 8] grad = aten.matmul.default(%a, @w)");
  ASSERT_THAT(cost.kernels, SizeIs(2));
  EXPECT_EQ(cost.kernels[1].cost.flops, 2 * 6 * 8);
}

TEST(TheBackwardOfAConvolution, KeepsItsGroups) {
  const std::string image = "input %x: f32[B, 8, 10, 10] grad = \"args.0\"\n";
  // 8 channels in 2 groups to 16: each output element takes 4 x 3 x 3.
  const double grouped = 2.0 * 16 * 8 * 8 * 4 * 3 * 3;
  EXPECT_EQ(macs_of(image + "weight @w: f32[16, 4, 3, 3] grad = parameter \"w\"\n",
                    "%y: f32[B, 16, 8, 8] grad = aten.conv2d.default(%x, @w, none, [1, 1], [0, 0], "
                    "[1, 1], 2)"),
            (Macs{grouped, grouped}));
  EXPECT_EQ(macs_of(image + "weight @w: f32[8, 1, 3, 3] grad = parameter \"w\"\n",
                    "%y: f32[B, 8, 8, 8] grad = aten.conv2d.default(%x, @w, none, [1, 1], [0, 0], "
                    "[1, 1], 8)")
                .weights,
            2.0 * 8 * 8 * 8 * 3 * 3)
      << "depthwise";
  const double transposed = 2.0 * 8 * 10 * 10 * 3 * 2 * 2;
  EXPECT_EQ(
      macs_of(image + "weight @w: f32[8, 3, 2, 2] grad = parameter \"w\"\n",
              "%y: f32[B, 6, 20, 20] grad = aten.conv_transpose2d.input(%x, @w, none, [2, 2], "
              "[0, 0], [0, 0], 2)"),
      (Macs{transposed, transposed}));
}

std::string attention_head(int length, int depth = 16) {
  const std::string l = std::to_string(length);
  return "input %q: f32[B, 4, " + l + ", 16] grad = \"args.0\"\ninput %k: f32[B, 4, " + l +
         ", 16] grad = \"args.1\"\ninput %v: f32[B, 4, " + l + ", " + std::to_string(depth) +
         "] grad = \"args.2\"\n";
}

std::string attention(int length, int depth, const std::string& rest) {
  return "%y: f32[B, 4, " + std::to_string(length) + ", " + std::to_string(depth) +
         "] grad = aten.scaled_dot_product_attention.default(%q, %k, %v" + rest + ")";
}

TEST(TheBackwardOfAttention, TakesFiveProductsFusedAndFourOtherwise) {
  const double scores = 2.0 * 4 * 9 * 9;
  EXPECT_EQ(macs_of(attention_head(9), attention(9, 16, "")).inputs, scores * 5 * 16);
  const std::string dropout = ", none, 0.1";
  EXPECT_EQ(macs_of(attention_head(9), attention(9, 16, dropout)).inputs, scores * 4 * 16)
      << "the host has no fused kernel with dropout";
  EXPECT_EQ(macs_of(attention_head(9), attention(9, 16, dropout), false).inputs, scores * 5 * 16);
  EXPECT_EQ(macs_of(attention_head(9, 8), attention(9, 8, ""), false).inputs,
            scores * (3 * 16 + 2 * 8));
}

TEST(TheBackwardOfAttention, IsNotFusedWhereHeadsAreBroadcast) {
  const std::string head =
      "input %q: f32[B, 4, 9, 16] grad = \"args.0\"\ninput %k: f32[B, 1, 9, 16] grad = \"args.1\"\n"
      "input %v: f32[B, 1, 9, 16] grad = \"args.2\"\n";
  const double scores = 2.0 * 4 * 9 * 9;
  EXPECT_EQ(macs_of(head, attention(9, 16, ""), false).inputs, scores * 4 * 16);
  EXPECT_EQ(macs_of(head, attention(9, 16, ", enable_gqa=true"), false).inputs, scores * 5 * 16);
}

TEST(CausalAttention, LeavesOutAlmostHalfWhereTheKernelIsFused) {
  const std::string head = attention_head(1024);
  const std::string all = attention(1024, 16, "");
  const std::string causal = attention(1024, 16, ", none, 0.0, true");
  const std::string dropped = attention(1024, 16, ", none, 0.1, true");
  for (const bool host : {true, false}) {
    const double share = forward_macs_of(head, causal, host) / forward_macs_of(head, all, host);
    EXPECT_NEAR(share, 0.53, 0.01);
    EXPECT_NEAR(macs_of(head, causal, host).inputs / macs_of(head, all, host).inputs, share, 1e-9);
  }
  EXPECT_EQ(forward_macs_of(head, dropped), forward_macs_of(head, all))
      << "products of whole matrices";
  EXPECT_EQ(forward_macs_of(attention_head(32), attention(32, 16, ", none, 0.0, true")),
            forward_macs_of(attention_head(32), attention(32, 16, "")))
      << "one tile is computed whole";
}

TEST(TheBackwardOfAnEmbedding, WritesTheWholeTable) {
  const std::string head =
      "input %i: i64[B, 3] = \"args.0\"\nweight @w: f32[50000, 8] grad = parameter \"w\"\n";
  const Bytes table{50000 * 8 * 4};
  const BackwardCost dense =
      backward_of(head, "%y: f32[B, 3, 8] grad = aten.embedding.default(@w, %i)");
  EXPECT_GT(dense.moved(true), table);
  EXPECT_LT(dense.moved(true), table + Bytes{1000});
  EXPECT_EQ(dense.moved(false), Bytes{0});
  const BackwardCost sparse =
      backward_of(head, "%y: f32[B, 3, 8] grad = aten.embedding.default(@w, %i, -1, false, true)");
  EXPECT_LT(sparse.moved(true), Bytes{1000});
}

TEST(TheBackwardOfALayerNorm, SplitsIntoInputAndScale) {
  const std::string head =
      "input %x: f32[B, 16] grad = \"args.0\"\nweight @w: f32[16] grad = parameter \"w\"\n"
      "weight @b: f32[16] grad = parameter \"b\"\n";
  const BackwardCost cost =
      backward_of(head, "%y: f32[B, 16] grad = aten.layer_norm.default(%x, [16], @w, @b, 1e-05)");
  const Bytes x{2 * 16 * 4};
  EXPECT_EQ(cost.moved(false), x * 3);
  EXPECT_EQ(cost.moved(true), x * 2 + Bytes{2 * 16 * 4});
}

TEST(TheBackwardOfViews, IsFreeUnlessTheyTakeAPart) {
  const std::string x = "input %x: f32[B, 8] grad = \"args.0\"\n";
  const auto kernels = [&](const std::string& node) { return backward_of(x, node).kernels; };
  EXPECT_THAT(kernels("%y: f32[8, B]{1, 8} in %x grad = aten.t.default(~%x)"), IsEmpty());
  EXPECT_THAT(kernels("%y: f32[B, 16] grad = aten.cat.default([%x, %x], 1)"), IsEmpty());
  EXPECT_THAT(kernels("%y: f32[B, 8] grad = aten.clone.default(%x)"), IsEmpty());
  EXPECT_EQ(
      kernels("%y: f32[B, 2]{8, 1} in %x grad = aten.slice.Tensor(~%x, 1, 0, 2)").at(0).cost.moved,
      Bytes{2 * 8 * 4 + 2 * 2 * 4})
      << "zeros around a part";
  EXPECT_EQ(kernels("%y: f32[3, B, 8]{0, 8, 1} in %x grad = aten.expand.default(~%x, [3, B, 8])")
                .at(0)
                .cost.moved,
            Bytes{3 * 2 * 8 * 4 + 2 * 8 * 4})
      << "the copies are summed";
}

TEST(TheBackwardOfASum, AddsUpWhatWasBroadcast) {
  const std::string head =
      "input %x: f32[B, 8] grad = \"args.0\"\nweight @b: f32[8] grad = parameter \"b\"\n";
  const BackwardCost cost = backward_of(head, "%y: f32[B, 8] grad = aten.add.Tensor(%x, @b)");
  EXPECT_EQ(cost.moved(false), Bytes{0});
  EXPECT_EQ(cost.moved(true), Bytes{2 * 8 * 4 + 8 * 4});
}

TEST(TheBackwardOfALstm, PassesThroughEveryMatrixThatAGradientNeeds) {
  const auto head = [](const char* x) {
    return std::string("input %x: f32[B, 5, 6]") + x +
           " = \"args.0\"\ninput %h: f32[1, B, 3] = \"args.1\"\n"
           "weight @a: f32[12, 6] grad = parameter \"a\"\n"
           "weight @b: f32[12, 3] grad = parameter \"b\"\n";
  };
  const std::string node =
      "%y: f32[B, 5, 3] grad, %hn: f32[1, B, 3] grad, %cn: f32[1, B, 3] grad = "
      "aten.lstm.input(%x, [%h, %h], [@a, @b], false, 1, 0.0, true, false, true)";
  const double tokens = 2 * 5;
  EXPECT_EQ(macs_of(head(" grad"), node),
            (Macs{tokens * (12 * 6 + 12 * 3), tokens * (12 * 6 + 12 * 3)}));
  EXPECT_EQ(macs_of(head(""), node), (Macs{tokens * 12 * 3, tokens * (12 * 6 + 12 * 3)}));
}

TEST(TheBackwardOfAGru, MakesNoGradientOfFirstStatesOnTheHost) {
  const auto macs = [](const char* states, bool host) {
    const std::string head = std::string("input %x: f32[B, 5, 6] grad = \"args.0\"\n") +
                             "input %h: f32[1, B, 3]" + states +
                             " = \"args.1\"\n"
                             "weight @a: f32[9, 6] grad = parameter \"a\"\n"
                             "weight @b: f32[9, 3] grad = parameter \"b\"\n";
    const std::string node =
        "%y: f32[B, 5, 3] grad, %hn: f32[1, B, 3] grad = "
        "aten.gru.input(%x, %h, [@a, @b], false, 1, 0.0, true, false, true)";
    return macs_of(head, node, host).inputs;
  };
  const double tokens = 2 * 5;
  EXPECT_EQ(macs(" grad", true), tokens * (9 * 6 + 9 * 3));
  EXPECT_EQ(macs("", true), tokens * 9 * 6 + (tokens - 2) * 9 * 3);
  EXPECT_EQ(macs("", false), tokens * (9 * 6 + 9 * 3)) << "one kernel makes them all";
}

TEST(TheBackwardOfAnUnknownOperator, MovesTwiceWhatItsForwardTouches) {
  const std::string head =
      "input %x: f32[B, 8] grad = \"args.0\"\nweight @w: f32[8] grad = parameter \"w\"\n";
  const Graph graph = step_of(head, "%y: f32[B, 8] grad = mylib.magic.default(%x, @w)");
  const BackwardCost cost = cost_of_node(graph, 0);
  EXPECT_FALSE(cost.known);
  EXPECT_EQ(cost.moved(false) + cost.moved(true), bytes_touched(graph, NodeId{0}, 2) * 2);
  EXPECT_EQ(cost.moved(false), cost.moved(true));
}

}  // namespace
}  // namespace kerf
