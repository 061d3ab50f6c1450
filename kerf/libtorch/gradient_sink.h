// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include "kerf/libtorch/autograd_function.h"

namespace kerf {

// A tensor cut off from what made it, whose gradient ends here. A leaf of PyTorch's own would copy
// the gradient into its own strides, and what adds it up further on might do so in another order:
// here it stays as it came, as inside of one graph.
class SunkTensor {
 public:
  SunkTensor() = default;
  explicit SunkTensor(const at::Tensor& original);

  const at::Tensor& tensor() const { return tensor_; }
  at::Tensor gradient() const;  // undefined when none came
  void set_gradient(at::Tensor gradient);
  torch::autograd::Edge edge() const { return {sink_, 0}; }

 private:
  at::Tensor tensor_;
  AutogradFunctionPtr sink_;
};

}  // namespace kerf
