// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Elements that are picked or put: backward needs where they stood.
#include "kerf/graph/argument.h"
#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

void second_argument(SavedCall& call) { call.keep(call.tensor(1, "indices")); }

void third_argument(SavedCall& call) { call.keep(call.tensor(2, "index")); }

// What is added to passes its gradient on; what is added picks its own from it.
void scatter_add(SavedCall& call) {
  if (call.needs(call.tensor(3, "src"))) third_argument(call);
}

void index_add(SavedCall& call) {
  const ValueId source = call.tensor(3, "source");
  if (!call.needs(source)) return;
  third_argument(call);
  call.keep(source);
}

void index_copy(SavedCall& call) {
  third_argument(call);
  const ValueId source = call.tensor(3, "source");
  if (call.needs(source)) call.keep(source);
}

void scatter(SavedCall& call) {
  if (call.needs(call.tensor(0, "self")) || call.needs(call.tensor(3, "src"))) third_argument(call);
}

void gather(SavedCall& call) {
  call.keep(call.tensor(0, "self"));
  third_argument(call);
}

void list_of_indices(SavedCall& call) {
  const Argument* const indices = call.argument(1, "indices");
  if (indices != nullptr) for_each_value(*indices, [&](ValueId id) { call.keep(id); });
}

void second_result(SavedCall& call) { call.keep(call.result(1)); }

void input_and_second_result(SavedCall& call) {
  call.keep(call.tensor(0, "self"));
  call.keep(call.result(1));
}

// Along a dimension the indices are a second result; over all elements, or of two tensors, the
// operands and the result are compared again.
void extremum(SavedCall& call) {
  if (call.result(1).valid()) return call.keep(call.result(1));
  call.keep(call.tensor(0, "self"));
  const ValueId other = call.tensor(1, "other");
  call.keep(other.valid() ? other : call.result());
}

void input_and_index(SavedCall& call) {
  call.keep(call.tensor(0, "self"));
  call.keep(call.tensor(1, "index"));
}

constexpr int kSum = 0;
constexpr int kMax = 2;

// The host's kernel for sums, which does not ask which row an index is for.
bool is_plain_sum(const SavedCall& call, int mode) {
  const ValueId weight = call.tensor(0, "weight");
  return !call.on_accelerator() && mode == kSum && element_size(call.value(weight).dtype) <= 4 &&
         call.number(8, "padding_idx", -1) < 0;
}

// Which row each index is for, in memory for one more, unless a plain sum does without; how many
// each row has; and what the maxima were, or a number a row.
void embedding_bag(SavedCall& call) {
  const ValueId indices = call.tensor(1, "indices");
  const ValueId result = call.result();
  const int mode = static_cast<int>(call.number(4, "mode", kSum));
  call.keep(indices);
  call.keep(call.tensor(2, "offsets"));
  const ValueId factors = call.tensor(6, "per_sample_weights");
  call.keep(factors);
  if (call.needs(factors)) call.keep(call.tensor(0, "weight"));
  const std::int64_t rows = call.size(result, 0);
  if (!is_plain_sum(call, mode)) call.keep_own(call.numel(indices) + 1, DType::i64);
  call.keep_own(rows, DType::i64);
  call.keep_own(mode == kMax ? call.numel(result) : rows, DType::i64);
  if (call.on_accelerator()) call.estimate();
}

void scatter_reduce(SavedCall& call) {
  call.keep(call.tensor(0, "self"));
  third_argument(call);
  call.keep(call.tensor(3, "src"));
  call.keep(call.result());
}

}  // namespace

void add_saved_index_rules(SavedRules& rules) {
  rules.add({"embedding"}, second_argument);
  rules.add({"masked_scatter", "max_unpool2d", "max_unpool3d"}, second_argument);
  rules.add({"_embedding_bag"}, embedding_bag);
  rules.add({"take"}, input_and_index);
  rules.add({"scatter_reduce"}, scatter_reduce);
  rules.add({"gather"}, gather);
  rules.add({"index_select", "index_fill"}, third_argument);
  rules.add({"scatter"}, scatter);
  rules.add({"index_copy"}, index_copy);
  rules.add({"scatter_add"}, scatter_add);
  rules.add({"index_add"}, index_add);
  rules.add({"index", "index_put", "_unsafe_index"}, list_of_indices);
  rules.add({"sort", "topk", "kthvalue", "mode"}, second_result);
  rules.add({"cummax", "cummin"}, input_and_second_result);
  rules.add({"max", "min", "amax", "amin", "median", "nanmedian"}, extremum);
}

}  // namespace kerf
