// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and pools.
#include <algorithm>

#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

// padding="same" that is not the same on both sides: the input is padded by one on one side.
bool keep_padded(SavedCall& call, ValueId input, ValueId weight) {
  const Argument* const padding = call.argument(4, "padding");
  const auto* const mode = padding == nullptr ? nullptr : padding->find<std::string>();
  if (mode == nullptr || *mode != "same") return false;
  const int spatial = call.rank(weight) - 2;
  const Argument* const dilation = call.argument(5, "dilation");
  const auto* const steps = dilation == nullptr ? nullptr : dilation->find<Argument::List>();
  std::int64_t elements = call.numel(input);
  bool is_padded = false;
  for (int dim = -spatial; dim < 0; ++dim) {
    std::int64_t step = 1;
    if (steps != nullptr && !steps->empty()) {
      const std::size_t at = steps->size() == 1 ? 0 : static_cast<std::size_t>(dim + spatial);
      if (const auto* number = (*steps)[at].find<Expr>()) step = number->eval(call.batch());
    }
    if (step * (call.size(weight, dim) - 1) % 2 == 0) continue;
    const std::int64_t size = std::max<std::int64_t>(call.size(input, dim), 1);
    elements = elements / size * (size + 1);
    is_padded = true;
  }
  if (is_padded) call.keep_own(elements, call.value(input).dtype);
  return is_padded;
}

// One formula gives all three gradients, and takes both whichever is asked for.
void convolution(SavedCall& call) {
  const ValueId input = call.tensor(0, "input");
  const ValueId weight = call.tensor(1, "weight");
  if (!keep_padded(call, input, weight)) call.keep(input);
  call.keep(weight);
}

void max_pool(SavedCall& call) {
  call.keep(call.tensor(0, "self"));
  call.keep_own(call.numel(call.result()), DType::i64);  // where each maximum was
}

void max_pool_with_indices(SavedCall& call) {
  call.keep(call.tensor(0, "self"));
  call.keep(call.result(1));
}

void average_pool(SavedCall& call) { call.keep(call.tensor(0, "self")); }

// To one element a channel it is a mean, which keeps nothing.
void adaptive_average_pool(SavedCall& call) {
  const ValueId input = call.tensor(0, "self");
  const ValueId result = call.result();
  const bool is_batched = call.rank(input) > 2;
  const int spatial = std::max(call.rank(input) - (is_batched ? 2 : 1), 1);
  for (int dim = -spatial; dim < 0; ++dim) {
    if (call.size(result, dim) != 1) return call.keep(input);
  }
}

void fractional_pool(SavedCall& call) {
  call.keep(call.tensor(0, "self"));
  call.keep(call.result(1));
}

void grid_sampler(SavedCall& call) {
  call.keep(call.tensor(0, "input"));
  call.keep(call.tensor(1, "grid"));
}

}  // namespace

void add_saved_window_rules(SavedRules& rules) {
  rules.add({"conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
             "conv_transpose3d", "convolution", "_convolution"},
            convolution);
  rules.add({"max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d"}, max_pool);
  rules.add({"max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d",
             "adaptive_max_pool3d", "max_pool1d_with_indices"},
            max_pool_with_indices);
  rules.add({"avg_pool1d", "avg_pool2d", "avg_pool3d"}, average_pool);
  rules.add({"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"},
            adaptive_average_pool);
  rules.add({"fractional_max_pool2d", "fractional_max_pool3d"}, fractional_pool);
  rules.add({"grid_sampler", "grid_sampler_2d", "grid_sampler_3d"}, grid_sampler);
}

}  // namespace kerf
