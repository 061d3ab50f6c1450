// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Query [..., l, e], key [..., s, e], value [..., s, v]: scores, softmax, weighted sum. Fused
// kernels (FlashAttention, Dao et al. 2022) keep no scores and make them again in the backward:
// five products instead of four. Under a causal mask they leave out the tiles of scores that are
// masked as a whole, on the host too.
#include <algorithm>

#include "kerf/profile/formula/table.h"

namespace kerf::formula {
namespace {

constexpr double kTile = 64;         // keys that a kernel takes at once
constexpr double kSoftmax = 10;      // flops a score
constexpr double kSoftmaxBack = 14;  // the exponential again, then the gradient

struct Attention {
  double scores = 0;  // computed: all, or those that a causal mask leaves
  double width = 0;   // e
  double depth = 0;   // v
  bool fused = true;
};

using Shape = std::vector<double>;

// Batch and heads: all but the last two.
bool same_heads(const Shape& a, const Shape& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end() - 2, b.begin());
}

// No fused kernel broadcasts heads by itself or makes a gradient of the mask; that of the host
// knows no dropout either, and wants one head size.
bool is_fused(const Call& call, const Shape& query, const Shape& key, const Shape& value) {
  if (call.node().op.find("attention_math") != std::string::npos) return false;
  const ValueId mask = call.tensor(3, "attn_mask");
  if (call.is_tensor(mask) && call.value(mask).requires_grad) return false;
  const bool grouped = call.flag(7, "enable_gqa");
  if (!grouped && !(same_heads(query, key) && same_heads(query, value))) return false;
  return !call.on_host() || (call.number(4, "dropout_p") == 0 && query.back() == value.back());
}

// Row i sees the keys up to i, and on average half a tile more.
double causal_scores(double length, double keys) {
  const double rows = std::min(length, keys);
  const double kept = rows * (rows + 1) / 2 + (length - rows) * keys + length * kTile / 2;
  return std::min(kept, length * keys);
}

// `is_causal` and the mask stand elsewhere in the schemas of single kernels.
bool is_causal(const Call& call) {
  const bool door = call.node().op.find("scaled_dot_product_attention.") != std::string::npos;
  return door && call.flag(5, "is_causal");
}

std::optional<Attention> read(const Call& call) {
  const Shape query = call.shape(0, "query");
  const Shape key = call.shape(1, "key");
  const Shape value = call.shape(2, "value");
  if (query.size() < 2 || key.size() < 2 || value.size() < 2) return std::nullopt;
  Attention attention{0, query.back(), value.back(), is_fused(call, query, key, value)};
  const double length = query[query.size() - 2];
  const double keys = key[key.size() - 2];
  const double heads = product(query) / std::max(1.0, length * query.back());
  attention.scores =
      heads * (attention.fused && is_causal(call) ? causal_scores(length, keys) : length * keys);
  return attention;
}

std::optional<OpCost> attention(const Call& call) {
  const std::optional<Attention> found = read(call);
  if (!found) return std::nullopt;
  const double macs = found->scores * (found->width + found->depth);
  return OpCost{Unit::matrix, 2 * macs + kSoftmax * found->scores, macs, call.touched()};
}

// One kernel makes the gradients of query, key and value together, whichever are wanted.
void of_attention(Backward& backward) {
  const Call& call = backward.call();
  const Attention found = *read(call);
  const std::vector<ValueId> wanted = backward.wanted();
  if (wanted.empty()) return;
  const double products = (found.fused ? 3 : 2) * found.width + 2 * found.depth;
  const double macs = found.scores * products;
  Bytes moved = call.touched() + call.output_bytes();
  for (const ValueId input : wanted) moved += call.bytes(input);
  if (!found.fused) {  // probabilities, their gradient and that of the scores lie in memory
    const std::int64_t element = element_size(call.value(wanted.front()).dtype);
    moved += Bytes{static_cast<std::int64_t>(found.scores) * element} * 5;
  }
  const auto input =
      std::find_if(wanted.begin(), wanted.end(), [&](ValueId v) { return !backward.of_weight(v); });
  backward.add(input == wanted.end() ? wanted.front() : *input,
               OpCost{Unit::matrix, 2 * macs + kSoftmaxBack * found.scores, macs, moved});
}

}  // namespace

void add_attention(Table& table) {
  table.add(
      {attention, of_attention},
      {"scaled_dot_product_attention", "_scaled_dot_product_flash_attention",
       "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention_for_cpu",
       "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_attention_math"});
}

}  // namespace kerf::formula
