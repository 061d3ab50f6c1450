// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Normalisation: the input, the scale, and the statistics as two small tensors of their own.
#include <algorithm>

#include "kerf/graph/arguments.h"
#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

// What halves are computed in; doubles are computed in doubles.
DType wide_dtype(DType dtype) { return element_size(dtype) < 4 ? DType::f32 : dtype; }

// Mean and deviation of each group. On the host those of halves are halves, unless the scale is
// of single numbers.
void keep_statistics(SavedCall& call, ValueId input, ValueId weight, std::int64_t groups) {
  DType dtype = wide_dtype(call.value(input).dtype);
  if (!call.on_accelerator()) dtype = call.value(weight.valid() ? weight : input).dtype;
  call.keep_own(groups, dtype);
  call.keep_own(groups, dtype);
}

// Row by row, or, where channels stand last in memory, pixel by pixel.
bool is_dense(const SavedCall& call, ValueId id, bool channels_last) {
  std::int64_t expected = 1;
  const auto follows = [&](int dim) {
    const bool fits = call.size(id, dim) == 1 || call.stride(id, dim) == expected;
    expected *= call.size(id, dim);
    return fits;
  };
  if (channels_last && !follows(1)) return false;
  for (int dim = call.rank(id) - 1; dim >= 0; --dim) {
    if (!(channels_last && dim == 1) && !follows(dim)) return false;
  }
  return true;
}

// at::_batch_norm_impl_index: cuDNN computes all but halves whose scale is of halves, and is given
// a copy of what is not dense.
bool is_copied_for_cudnn(const SavedCall& call, ValueId input, ValueId weight) {
  const DType dtype = call.value(input).dtype;
  const int rank = call.rank(input);
  if (!call.on_accelerator() || rank < 3 || !weight.valid()) return false;
  if (dtype == DType::bf16 || element_size(call.value(weight).dtype) == 2) return false;
  return !is_dense(call, input, false) && !(rank > 3 && is_dense(call, input, true));
}

void batch_norm(SavedCall& call) {
  const ValueId input = call.tensor(0, "input");
  const ValueId weight = call.tensor(1, "weight");
  is_copied_for_cudnn(call, input, weight) ? call.keep_copy(input) : call.keep(input);
  call.keep(weight);
  const ValueId mean = call.tensor(3, "running_mean");
  call.keep(mean);
  call.keep(call.tensor(4, "running_var"));
  const bool training = call.flag(5, "training", true) || !mean.valid();
  if (training) keep_statistics(call, input, weight, call.size(input, 1));
}

// That are made normal one by one.
std::int64_t num_rows(const SavedCall& call, ValueId input) {
  const Argument* const shape = call.argument(1, "normalized_shape");
  const auto* const sizes = shape == nullptr ? nullptr : shape->find<Argument::List>();
  const int normalised = sizes == nullptr ? 1 : static_cast<int>(sizes->size());
  std::int64_t rows = 1;
  for (int dim = 0; dim < call.rank(input) - normalised; ++dim) rows *= call.size(input, dim);
  return rows;
}

void layer_norm(SavedCall& call) {
  const ValueId input = call.tensor(0, "input");
  call.keep(input);
  const ValueId weight = call.tensor(2, "weight");
  call.keep(weight);
  call.keep(call.tensor(3, "bias"));
  keep_statistics(call, input, weight, num_rows(call, input));
}

// An accelerator has a kernel for it, which keeps one number a row. On the host it is made of
// others: halves are made single first, and a scale needs the rows before it.
void rms_norm(SavedCall& call) {
  const ValueId input = call.tensor(0, "input");
  const ValueId weight = call.tensor(2, "weight");
  const std::int64_t rows = num_rows(call, input);
  const DType dtype = wide_dtype(call.value(input).dtype);
  if (call.on_accelerator()) {
    call.keep(input);
    call.keep(weight);
    return call.keep_own(rows, dtype);
  }
  if (call.needs(input)) {
    dtype == call.value(input).dtype ? call.keep(input) : call.keep_own(call.numel(input), dtype);
    call.keep_own(rows, dtype);
    call.keep(weight);
  }
  if (call.needs(weight)) call.keep_own(call.numel(input), dtype);
}

void group_norm(SavedCall& call) {
  const ValueId input = call.tensor(0, "input");
  call.keep(input);
  const ValueId weight = call.tensor(2, "weight");
  call.keep(weight);
  const auto groups = static_cast<std::int64_t>(call.number(1, "num_groups", 1));
  keep_statistics(call, input, weight, call.size(input, 0) * groups);
}

// The kernels themselves, in graphs of operators: the input, the scale and two results.
void native_norm(SavedCall& call, std::size_t weight) {
  call.keep(call.tensor(0, "input"));
  call.keep(call.tensor(weight, "weight"));
  call.keep(call.result(1));
  call.keep(call.result(2));
}

void native_layer_norm(SavedCall& call) {
  native_norm(call, 2);
  call.keep(call.tensor(3, "bias"));
}

void native_group_norm(SavedCall& call) { native_norm(call, 1); }

// One kernel for the first and the last dimension, which keeps the norms; `v * (g / norm(v))`
// elsewhere, where norms are taken of a copy with that dimension in front.
void weight_norm(SavedCall& call) {
  const ValueId direction = call.tensor(0, "v");
  const ValueId magnitude = call.tensor(1, "g");
  const auto dim = static_cast<int>(call.number(2, "dim", 0));
  const DType dtype = call.value(magnitude).dtype;
  call.keep(direction);
  if (dim == 0 || dim == call.rank(direction) - 1) {
    call.keep(magnitude);
    return call.keep_own(call.numel(magnitude), wide_dtype(dtype));
  }
  call.keep_own(call.numel(magnitude), dtype);  // the norms
  if (!call.needs(direction)) return;
  call.keep(magnitude);
  call.keep_own(call.numel(magnitude), dtype);  // the quotients
  call.keep_own(call.numel(direction), call.value(direction).dtype);
}

}  // namespace

void add_saved_norm_rules(SavedRules& rules) {
  rules.add({"batch_norm"}, batch_norm);
  rules.add({"layer_norm"}, layer_norm);
  rules.add({"rms_norm"}, rms_norm);
  rules.add({"group_norm"}, group_norm);
  rules.add({"native_layer_norm"}, native_layer_norm);
  rules.add({"native_group_norm"}, native_group_norm);
  rules.add({"_weight_norm"}, weight_norm);
}

}  // namespace kerf
