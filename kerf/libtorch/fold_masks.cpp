// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/fold_masks.h"

#include <ATen/ops/all.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <map>

#include "kerf/graph/passes/attention_masks.h"
#include "kerf/graph/passes/grouped_heads.h"
#include "kerf/libtorch/evaluate.h"

namespace kerf {
namespace {

// One tensor on the way to a mask; a boolean mask of 16,384 tokens takes half of it.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 29;

// What stands where everything is seen, and where nothing is. Not the lowest number, which some
// models use: it hides a score only if that is larger.
struct Signs {
  c10::Scalar seen;
  c10::Scalar hidden;
};

Signs signs_of(const at::Tensor& mask) {
  if (mask.scalar_type() == c10::ScalarType::Bool) return {true, false};
  return {0.0, -std::numeric_limits<double>::infinity()};
}

bool is_causal(const at::Tensor& mask, const Signs& signs, std::int64_t queries,
               std::int64_t keys) {
  if (mask.dim() < 2 || mask.size(-2) != queries || mask.size(-1) != keys) return false;
  const at::Tensor below = at::ones({queries, keys}, at::kBool).tril();
  const at::Tensor expected =
      at::full({queries, keys}, signs.hidden, mask.options()).masked_fill_(below, signs.seen);
  return at::equal(mask, expected.expand_as(mask));
}

MaskKind judge(const at::Tensor& mask, const MaskedAttention& attention) {
  const Signs signs = signs_of(mask);
  if (at::eq(mask, signs.seen).all().item<bool>()) return MaskKind::none;
  if (!attention.queries.is_constant() || !attention.keys.is_constant()) return MaskKind::any;
  const bool causal =
      is_causal(mask, signs, attention.queries.constant(), attention.keys.constant());
  return causal ? MaskKind::causal : MaskKind::any;
}

MaskKind find_kind(const FixedEvaluator& evaluator, const MaskedAttention& attention) {
  constexpr std::int64_t kSeveral = 2;
  if (evaluator.fixed(attention.mask) != Fixed::repeated) return MaskKind::any;
  if (evaluator.largest(attention.mask, kSeveral).count > kMostBytes) return MaskKind::any;
  try {
    const at::Tensor one = evaluator.at_batch(attention.mask, 1);
    const MaskKind kind = judge(one, attention);
    if (kind == MaskKind::any) return kind;
    // It is proved that other batches repeat this one; look at one of them all the same.
    const at::Tensor several = evaluator.at_batch(attention.mask, kSeveral);
    return at::equal(several, one.expand_as(several)) ? kind : MaskKind::any;
  } catch (const std::exception&) {
    // It cannot be computed apart from a call, at batch one: the call decides.
    return MaskKind::any;
  }
}

}  // namespace

Graph fold_masks(const Graph& graph) {
  const std::vector<MaskedAttention> attentions = masked_attentions(graph);
  if (attentions.empty()) return graph;
  const FixedEvaluator evaluator(graph);
  // Layers share masks, and shapes: (mask, queries, keys).
  std::map<std::tuple<ValueId, std::string, std::string>, MaskKind> kinds;
  std::vector<KnownMask> known;
  for (const MaskedAttention& attention : attentions) {
    const auto key = std::tuple(attention.mask, attention.queries.str(), attention.keys.str());
    auto found = kinds.find(key);
    if (found == kinds.end()) {
      found = kinds.emplace(key, find_kind(evaluator, attention)).first;
    }
    known.push_back({attention.node, found->second});
  }
  return group_heads(leave_out_masks(graph, known));
}

}  // namespace kerf
