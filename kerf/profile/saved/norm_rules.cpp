// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Normalisation: the input, the scale, and the statistics as two small tensors of their own.
#include <algorithm>

#include "kerf/graph/arguments.h"
#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

// Statistics of halves are single numbers; those of doubles are doubles.
DType statistics_dtype(const Value& input) {
  return element_size(input.dtype) < 4 ? DType::f32 : input.dtype;
}

void keep_statistics(SavedCall& call, ValueId input, std::int64_t groups, int number) {
  for (int i = 0; i < number; ++i) call.keep_own(groups, statistics_dtype(call.value(input)));
}

void batch_norm(SavedCall& call) {
  const ValueId input = call.tensor(0, "input");
  call.keep(input);
  call.keep(call.tensor(1, "weight"));
  const ValueId mean = call.tensor(3, "running_mean");
  call.keep(mean);
  call.keep(call.tensor(4, "running_var"));
  const bool training = call.flag(5, "training", true) || !mean.valid();
  if (training) keep_statistics(call, input, call.size(input, 1), 2);
}

void layer_norm(SavedCall& call) {
  const ValueId input = call.tensor(0, "input");
  call.keep(input);
  call.keep(call.tensor(2, "weight"));
  call.keep(call.tensor(3, "bias"));
  const Argument* const shape = call.argument(1, "normalized_shape");
  const auto* const sizes = shape == nullptr ? nullptr : shape->find<Argument::List>();
  const int normalised = sizes == nullptr ? 1 : static_cast<int>(sizes->size());
  std::int64_t rows = 1;
  for (int dim = 0; dim < call.rank(input) - normalised; ++dim) rows *= call.size(input, dim);
  keep_statistics(call, input, rows, 2);
}

void group_norm(SavedCall& call) {
  const ValueId input = call.tensor(0, "input");
  call.keep(input);
  call.keep(call.tensor(2, "weight"));
  const auto groups = static_cast<std::int64_t>(call.number(1, "num_groups", 1));
  keep_statistics(call, input, call.size(input, 0) * groups, 2);
}

}  // namespace

void add_saved_norm_rules(SavedRules& rules) {
  rules.add({"batch_norm"}, batch_norm);
  rules.add({"layer_norm"}, layer_norm);
  rules.add({"group_norm"}, group_norm);
}

}  // namespace kerf
