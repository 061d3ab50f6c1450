// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/attention_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/graph/text.h"

namespace kerf {
namespace {

using testing::HasSubstr;
using testing::Not;

Graph attention(const std::string& arguments, const std::string& mask = "bool[B, 1, 8, 6]") {
  return parse_graph(
      "kerf-graph 1.0\nbatch 2\ninput %q: f32[B, 2, 8, 4] = \"args.0\"\n"
      "input %k: f32[B, 2, 6, 4] = \"args.1\"\n"
      "%m: " +
      mask +
      " = aten.ones.default([])\n"
      "%y: f32[B, 2, 8, 4] = aten.scaled_dot_product_attention.default(%q, %k, %k, " +
      arguments + ")\noutput \"y\" = %y\n");
}

std::string without_mask(const std::string& arguments, MaskKind kind) {
  const Graph graph = attention(arguments);
  const auto found = masked_attentions(graph);
  EXPECT_EQ(found.size(), 1U);
  return print_graph(leave_out_masks(graph, {{found.at(0).node, kind}}));
}

TEST(AMask, LeavesEverythingElseInPlace) {
  EXPECT_THAT(without_mask("attn_mask=%m, scale=0.5", MaskKind::none),
              HasSubstr("default(%q, %k, %k, scale=0.5)"));
  EXPECT_THAT(without_mask("%m, 0.25", MaskKind::none),
              HasSubstr("default(%q, %k, %k, none, 0.25)"));
  EXPECT_THAT(without_mask("%m, 0.25, false, enable_gqa=true", MaskKind::causal),
              HasSubstr("default(%q, %k, %k, none, 0.25, true, enable_gqa=true)"));
  EXPECT_THAT(without_mask("%m, is_causal=false, scale=0.5", MaskKind::causal),
              HasSubstr("default(%q, %k, %k, none, scale=0.5, is_causal=true)"));
}

TEST(AMask, TakesItsMakersAlong) {
  EXPECT_THAT(without_mask("%m", MaskKind::none), Not(HasSubstr("aten.ones")));
  EXPECT_THAT(without_mask("%m", MaskKind::any), HasSubstr("aten.ones"));
}

TEST(AMask, SaysHowManyScoresItCovers) {
  const auto found = masked_attentions(attention("%m"));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].queries, Expr(8));
  EXPECT_EQ(found[0].keys, Expr(6));
}

TEST(AMask, IsNotTakenForOneWhereItMakesTheResultLarger) {
  EXPECT_EQ(masked_attentions(attention("%m", "bool[3, B, 2, 8, 6]")).size(), 0U);
  EXPECT_EQ(masked_attentions(attention("%m", "bool[B, 3, 8, 6]")).size(), 0U);
  EXPECT_EQ(masked_attentions(attention("%m", "bool[8, 6]")).size(), 1U);
}

TEST(AMask, BesideIsCausalIsLeftToPyTorch) {
  EXPECT_EQ(masked_attentions(attention("%m, 0.0, true")).size(), 0U);
  EXPECT_EQ(masked_attentions(attention("none, is_causal=true")).size(), 0U);
}

}  // namespace
}  // namespace kerf
