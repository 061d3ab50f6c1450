// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Constant masks by evaluation: what is proved about values is held to their numbers at several
// batches, and attention keeps every mask that is neither empty nor causal.
#include "kerf/libtorch/fold_masks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kerf/graph/text.h"
#include "kerf/libtorch/evaluate.h"

namespace kerf {
namespace {

// A packed causal mask as transformers' models are exported with.
constexpr const char* kPacked = R"(%p: i64[8] = aten.arange.default(8, device=device())
%u: i64[1, 8] in %p = aten.unsqueeze.default(~%p, 0)
%e: i64[B, 8]{0, 1} in %p = aten.expand.default(~%u, [B, -1])
%f: i64[B, 1]{0, 1} in %p = aten.slice.Tensor(~%e, 1, 0, 1)
%s: i64[B, 1] = aten.sub.Tensor(%f, 1)
%d: i64[B, 8] = aten.diff.default(%e, 1, -1, %s)
%ne: bool[B, 8] = aten.ne.Scalar(%d, 1)
%c: i64[B, 8] = aten.cumsum.default(%ne, -1)
%b: i64[B] = aten.arange.default(B, device=device())
%b1: i64[B, 1, 1, 1] in %b = aten.view.default(~%b, [B, 1, 1, 1])
%q: i64[1, 1, 8, 1] in %p = aten.view.default(~%p, [1, 1, 8, 1])
%k: i64[1, 1, 1, 8] in %p = aten.view.default(~%p, [1, 1, 1, 8])
%le: bool[1, 1, 8, 8] = aten.le.Tensor(%k, %q)
%i0: i64[B, 1, 8, 1] = aten.index.Tensor(%c, [%b1, %q])
%i1: i64[B, 1, 1, 8] = aten.index.Tensor(%c, [%b1, %k])
%eq: bool[B, 1, 8, 8] = aten.eq.Tensor(%i0, %i1)
%m: bool[B, 1, 8, 8] = aten.__and__.Tensor(%le, %eq)
)";

Graph attention(const std::string& lines) {
  return parse_graph(
      "kerf-graph 1.0\nbatch 2\ninput %x: f32[B, 2, 8, 4] = \"args.0\"\n" + lines +
      "%y: f32[B, 2, 8, 4] = aten.scaled_dot_product_attention.default(%x, %x, %x, %m)\n"
      "output \"y\" = %y\n");
}

std::string folded(const std::string& lines) {
  const std::string text = print_graph(fold_masks(attention(lines)));
  return text.substr(text.find("attention.default("),
                     text.find("\noutput") - text.find("attention.default("));
}

constexpr const char* kNone = "attention.default(%x, %x, %x, none)";
constexpr const char* kCausal = "attention.default(%x, %x, %x, none, is_causal=true)";
constexpr const char* kKept = "attention.default(%x, %x, %x, %m)";

TEST(AProvedValue, HoldsAtEveryBatch) {
  const Graph graph = attention(kPacked);
  const FixedEvaluator evaluator(graph);
  for (std::size_t v = 0; v < graph.num_values(); ++v) {
    const ValueId id(v);
    if (evaluator.fixed(id) == Fixed::no) continue;
    const at::Tensor one = evaluator.at_batch(id, 1);
    for (const std::int64_t batch : {2, 3, 5}) {
      const at::Tensor found = evaluator.at_batch(id, batch);
      if (evaluator.fixed(id) == Fixed::repeated) {
        EXPECT_TRUE(at::equal(found, one.expand_as(found))) << graph.value(id).name;
      } else {
        EXPECT_TRUE(at::equal(found.flatten(), at::arange(batch))) << graph.value(id).name;
      }
    }
  }
  EXPECT_EQ(evaluator.fixed(graph.inputs()[0].value), Fixed::no);
}

TEST(AMask, OfPackedSequencesIsCausalWhenThereIsOne) { EXPECT_EQ(folded(kPacked), kCausal); }

TEST(AMask, IsJudgedByItsNumbers) {
  const auto filled = [](const char* value) {
    return std::string("%m: f32[8, 8] = aten.full.default([8, 8], ") + value + ")\n";
  };
  EXPECT_EQ(folded(filled("0.0")), kNone);
  EXPECT_EQ(folded(filled("-0.0")), kNone);
  EXPECT_EQ(folded(filled("1.0")), kKept);
  EXPECT_EQ(folded(filled("nan")), kKept);
  EXPECT_EQ(folded("%f: f32[8, 8] = aten.full.default([8, 8], -inf)\n"
                   "%m: f32[8, 8] = aten.triu.default(%f, 1)\n"),
            kCausal);
  EXPECT_EQ(folded("%f: f32[8, 8] = aten.full.default([8, 8], -3.4e38)\n"
                   "%m: f32[8, 8] = aten.triu.default(%f, 1)\n"),
            kKept);
  EXPECT_EQ(folded("%f: bool[8, 8] = aten.full.default([8, 8], true)\n"
                   "%m: bool[8, 8] = aten.tril.default(%f, -1)\n"),
            kKept);
}

TEST(AMask, TooLargeToBeLookedAtIsKept) {
  EXPECT_EQ(folded("%w: f32[4000000, 64] = aten.full.default([4000000, 64], 0.0)\n"
                   "%s: f32[8, 64] in %w = aten.slice.Tensor(~%w, 0, 0, 8)\n"
                   "%m: f32[8, 8]{64, 1} in %w = aten.slice.Tensor(~%s, 1, 0, 8)\n"),
            kKept);
}

TEST(AMask, ThatCannotBeComputedIsKept) {
  EXPECT_EQ(folded("%m: f32[8, 8] = aten.full.default([8, 9], 0.0)\n"), kKept);
}

}  // namespace
}  // namespace kerf
