// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and pools.
#include <algorithm>

#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

// One formula gives all three gradients, and takes both whichever is asked for.
void convolution(SavedCall& call) {
  call.keep(call.tensor(0, "input"));
  call.keep(call.tensor(1, "weight"));
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
}

}  // namespace kerf
