// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Scaled dot product attention: fused kernels keep their operands, the result and a sum a row; the
// plain one keeps every matrix between.
#include "kerf/profile/saved/attention_layout.h"
#include "kerf/profile/saved/rules.h"
#include "kerf/profile/saved/stack.h"

namespace kerf {
namespace {

struct Attention {
  ValueId q;
  ValueId k;
  ValueId v;
  ValueId mask;
  double dropout;
  bool grouped;  // several heads of q share one of k and v
};

Attention read_attention(const SavedCall& call) {
  return {call.tensor(0, "query"),        call.tensor(1, "key"),
          call.tensor(2, "value"),        call.tensor(3, "attn_mask"),
          call.number(4, "dropout_p", 0), call.flag(7, "enable_gqa", false)};
}

bool same_sizes(const SavedCall& call, ValueId a, ValueId b, int dim) {
  return call.size(a, dim) == call.size(b, dim);
}

bool is_four_dimensional(const SavedCall& call, const Attention& a) {
  return call.rank(a.q) == 4 && call.rank(a.k) == 4 && call.rank(a.v) == 4;
}

// at::native::_fused_sdp_choice_cpp.
bool is_fused_on_host(const SavedCall& call, const Attention& a) {
  const bool same_heads = same_sizes(call, a.q, a.k, 1) && same_sizes(call, a.q, a.v, 1);
  return is_four_dimensional(call, a) && a.dropout == 0 && !call.needs(a.mask) &&
         same_sizes(call, a.q, a.k, 0) && (same_heads || a.grouped) &&
         same_sizes(call, a.q, a.v, -1);
}

// sdp::select_sdp_backend: of single numbers the memory-efficient kernel, which knows no grouped
// heads; of halves the flash kernel, which knows no masks, or else the other. A mask that needs a
// gradient goes to neither (recorded: T5's position bias).
bool is_fused_on_accelerator(const SavedCall& call, const Attention& a) {
  const bool is_half = element_size(call.value(a.q).dtype) == 2;
  const bool is_double = element_size(call.value(a.q).dtype) == 8;
  const bool same_heads = same_sizes(call, a.q, a.k, 1) && same_sizes(call, a.q, a.v, 1);
  return is_four_dimensional(call, a) && !is_double && !call.needs(a.mask) &&
         same_sizes(call, a.q, a.k, 0) && (same_heads || (a.grouped && is_half && !a.mask.valid()));
}

// A mask of truth values becomes one of numbers to add.
void keep_mask(SavedCall& call, const Attention& a) {
  if (!a.mask.valid()) return;
  if (call.value(a.mask).dtype == DType::boolean) {
    call.keep_own(call.numel(a.mask), call.value(a.q).dtype);
  } else {
    call.keep(a.mask);
  }
}

void fused(SavedCall& call, const Attention& a) {
  call.keep(a.q);
  call.keep(a.k);
  call.keep(a.v);
  keep_mask(call, a);
  call.keep(call.on_accelerator() ? result_as_written(call) : call.result());
  // The logarithm of each row's sum. The memory-efficient kernel writes rows in groups of 32.
  const std::int64_t rows = call.size(a.q, -2);
  const bool in_groups = call.on_accelerator() && element_size(call.value(a.q).dtype) == 4;
  const std::int64_t written = in_groups ? (rows + 31) / 32 * 32 : rows;
  const bool is_double = call.value(a.q).dtype == DType::f64;
  call.keep_own(call.size(a.q, 0) * call.size(a.q, 1) * written,
                is_double ? DType::f64 : DType::f32);
}

// softmax(q k^T) v, operator by operator: q and k are scaled first, so both are kept as copies.
void plain(SavedCall& call, const Attention& a) {
  // The host computes halves as single numbers, of copies.
  const bool is_widened = !call.on_accelerator() && element_size(call.value(a.q).dtype) == 2;
  const DType dtype = is_widened ? DType::f32 : call.value(a.q).dtype;
  const std::int64_t stack = num_matrices(call);
  const std::int64_t scores = stack * call.size(a.q, -2) * call.size(a.k, -2);
  const bool to_scores = call.needs(a.q) || call.needs(a.k) || call.needs(a.mask);
  if (call.needs(a.k)) call.keep_own(stack * call.size(a.q, -2) * call.size(a.q, -1), dtype);
  if (call.needs(a.q)) call.keep_own(stack * call.size(a.k, -2) * call.size(a.k, -1), dtype);
  const bool multiplies = call.needs(a.v) && a.dropout == 0;  // else what the dropout has made
  if (to_scores || multiplies) call.keep_own(scores, dtype);  // after the softmax
  if (a.dropout > 0) {
    if (to_scores) call.keep_own(scores, call.on_accelerator() ? DType::boolean : dtype);
    if (call.needs(a.v)) call.keep_own(scores, dtype);
  }
  if (!to_scores) return;
  if (is_widened || (a.grouped && !same_sizes(call, a.q, a.v, 1))) {
    call.keep_own(stack * call.size(a.v, -2) * call.size(a.v, -1), dtype);
  } else {
    keep_stack(call, a.v);
  }
}

void attention(SavedCall& call) {
  const Attention a = read_attention(call);
  if (is_fused_attention(call)) {
    fused(call, a);
  } else {
    plain(call, a);
  }
}

}  // namespace

bool is_fused_attention(const SavedCall& call) {
  const Attention a = read_attention(call);
  return call.on_accelerator() ? is_fused_on_accelerator(call, a) : is_fused_on_host(call, a);
}

void add_saved_attention_rules(SavedRules& rules) {
  rules.add({"scaled_dot_product_attention"}, attention);
}

}  // namespace kerf
