// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// Tensors that a model writes, with what they held: every pass begins with the same numbers, and
// the model's own weights are put back at the end.
class WrittenTensors {
 public:
  WrittenTensors() = default;
  // One tensor for each weight and each input of the graph; those that are not defined are left
  // out.
  WrittenTensors(const Graph& graph, const std::vector<at::Tensor>& weights,
                 const std::vector<at::Tensor>& inputs);
  void restore();

 private:
  void keep(const Graph& graph, ValueId value, const at::Tensor& tensor);

  std::vector<std::pair<at::Tensor, at::Tensor>> saved_;
};

// Tensors that the model writes are copied, those that share one memory together; the others stay.
// For the graph's inputs, or its weights, in their order.
std::vector<at::Tensor> own_written_inputs(const Graph& graph, std::vector<at::Tensor> inputs);
std::vector<at::Tensor> own_written_weights(const Graph& graph, std::vector<at::Tensor> weights);

}  // namespace kerf
