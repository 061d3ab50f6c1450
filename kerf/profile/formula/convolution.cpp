// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/formula/products.h"

namespace kerf::formula {
namespace {

// weight [out, in / groups, k...]: each output element takes one filter.
std::optional<OpCost> convolution(const Call& call) {
  const std::vector<double> weight = call.shape(1);
  if (weight.empty() || weight[0] == 0) return std::nullopt;
  return matrix_cost(call, call.output_elements() * product(weight) / weight[0]);
}

// weight [in, out / groups, k...]: each input element feeds one filter.
std::optional<OpCost> convolution_transpose(const Call& call) {
  const std::vector<double> weight = call.shape(1);
  if (weight.empty() || weight[0] == 0) return std::nullopt;
  return matrix_cost(call, product(call.shape(0)) * product(weight) / weight[0]);
}

// aten.convolution carries `transposed` as its seventh argument.
std::optional<OpCost> any_convolution(const Call& call) {
  return call.flag(6, "transposed") ? convolution_transpose(call) : convolution(call);
}

// The gradient of the input is the transposed convolution of the output's, that of the weight pairs
// the same elements once more: as many multiply-adds each, whatever stride, dilation and groups.
void of_convolution(Backward& backward) {
  const Call& call = backward.call();
  const double macs = backward.forward().macs;
  add_product_gradient(backward, call.tensor(0), call.tensor(1), macs);
  add_product_gradient(backward, call.tensor(1), call.tensor(0), macs);
  add_addend_gradient(backward, call.tensor(2));
}

}  // namespace

void add_convolutions(Table& table) {
  table.add({convolution, of_convolution},
            {"conv1d", "conv2d", "conv3d", "_conv_depthwise2d", "conv_depthwise3d"});
  table.add({convolution_transpose, of_convolution},
            {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"});
  table.add({any_convolution, of_convolution},
            {"convolution", "_convolution", "cudnn_convolution", "mkldnn_convolution"});
}

}  // namespace kerf::formula
