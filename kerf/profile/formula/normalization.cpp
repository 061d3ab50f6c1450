// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/formula/pointwise.h"

namespace kerf::formula {
namespace {

constexpr double kInputFlops = 11;  // two sums along the group, then a few operations an element
constexpr double kScaleFlops = 4;

// Reads the output's gradient and the input, once for the input's gradient and once for those of
// scale and shift, which are made together.
void of_normalization(Backward& backward) {
  const Call& call = backward.call();
  const ValueId input = call.tensor(0);
  if (!call.is_tensor(input)) return;
  const double elements = call.elements(input);
  const Bytes read = call.bytes(input) * 2;
  if (backward.wanted(input)) {
    backward.add(input, kInputFlops * elements, read + call.bytes(input));
  }
  Bytes scale;
  ValueId learned;
  for (const ValueId id : backward.wanted()) {
    if (id == input) continue;
    scale += call.bytes(id);
    learned = id;
  }
  if (learned.valid()) backward.add(learned, kScaleFlops * elements, read + scale);
}

}  // namespace

void add_normalizations(Table& table) {
  table.add({per_output<8>, of_normalization},
            {"layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "instance_norm",
             "batch_norm", "native_batch_norm", "_native_batch_norm_legit",
             "_native_batch_norm_legit_no_training", "_native_batch_norm_legit_functional",
             "cudnn_batch_norm", "rms_norm", "_fused_rms_norm", "_batch_norm_with_update",
             "_batch_norm_no_update"});
  table.add({per_output<8>, derivative<11, 2>}, {"normalize", "local_response_norm", "_weight_norm",
                                                 "_weight_norm_interface", "renorm"});
}

}  // namespace kerf::formula
