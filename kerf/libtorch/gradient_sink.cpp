// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/gradient_sink.h"

#include <torch/csrc/autograd/variable.h>

#include <limits>

namespace kerf {
namespace {

class GradientEnd : public AutogradFunction {
 public:
  // The engine runs the highest number first: gradients are taken as soon as they are there.
  GradientEnd() : AutogradFunction(std::numeric_limits<std::uint64_t>::max()) {}
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    gradient = std::move(gradients.at(0));
    return {};
  }
  at::Tensor gradient;
};

}  // namespace

// It counts writes together with the original: whoever kept one of them for backward must hear of a
// write through the other.
SunkTensor::SunkTensor(const at::Tensor& original)
    : tensor_(original.detach()), sink_(make_autograd_function<GradientEnd>()) {
  const std::uint32_t number = sink_->add_input_metadata(tensor_);
  torch::autograd::impl::set_gradient_edge(tensor_, {sink_, number});
}

at::Tensor SunkTensor::gradient() const {
  return sink_ ? static_cast<const GradientEnd&>(*sink_).gradient : at::Tensor();
}

void SunkTensor::set_gradient(at::Tensor gradient) {
  static_cast<GradientEnd&>(*sink_).gradient = std::move(gradient);
}

}  // namespace kerf
