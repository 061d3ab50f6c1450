// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Pooling and resampling: windows over images.
#include "kerf/profile/formula/pointwise.h"

namespace kerf::formula {
namespace {

constexpr std::int64_t kIndex = 8;  // bytes of a place that a maximum was taken from

double window(const Call& call) {
  double size = 1;
  const Argument* kernel = call.argument(1, "kernel_size");
  const auto* list = kernel == nullptr ? nullptr : kernel->find<Argument::List>();
  if (list == nullptr) return size;
  for (const Argument& extent : *list) {
    const Expr* length = extent.find<Expr>();
    if (length != nullptr && length->is_constant()) size *= static_cast<double>(length->constant());
  }
  return size;
}

// Every input element is read once from memory, and every output element looks at the window.
std::optional<OpCost> pool(const Call& call) {
  return OpCost{Unit::vector, window(call) * call.output_elements(), 0, call.touched()};
}

// Zeros, and the output's gradient where the maxima were.
void of_max_pool(Backward& backward) {
  const Call& call = backward.call();
  const ValueId input = call.tensor(0);
  if (!backward.wanted(input)) return;
  const double elements = call.elements(call.node().outputs.front());
  const Bytes indices{static_cast<std::int64_t>(elements) * kIndex};
  backward.add(input, elements,
               call.bytes(input) + call.bytes(call.node().outputs.front()) + indices);
}

void of_average_pool(Backward& backward) {
  const Call& call = backward.call();
  const ValueId input = call.tensor(0);
  if (!backward.wanted(input)) return;
  backward.add(input, window(call) * call.output_elements(),
               call.bytes(input) + call.output_bytes());
}

// Each output element is spread over the few that it was made of.
void of_resampling(Backward& backward) {
  const Call& call = backward.call();
  for (const ValueId input : backward.wanted()) {
    backward.add(input, 8 * call.output_elements(), call.bytes(input) + call.output_bytes());
  }
}

}  // namespace

void add_windows(Table& table) {
  table.add({pool, of_max_pool},
            {"max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices",
             "max_pool3d_with_indices", "max_pool1d_with_indices"});
  table.add({pool, of_average_pool}, {"avg_pool1d", "avg_pool2d", "avg_pool3d"});
  table.add({per_input<1>, of_each_input<1, 1>},
            {"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
             "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"});
  table.add({per_input<1>, of_max_pool},
            {"adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
             "fractional_max_pool2d", "fractional_max_pool3d"});
  table.add({per_output<8>, of_resampling},
            {"upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
             "upsample_bilinear2d", "upsample_bicubic2d", "upsample_linear1d",
             "upsample_trilinear3d", "_upsample_nearest_exact2d", "_upsample_nearest_exact1d",
             "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "grid_sampler", "grid_sampler_2d",
             "grid_sampler_3d", "affine_grid_generator"});
}

}  // namespace kerf::formula
