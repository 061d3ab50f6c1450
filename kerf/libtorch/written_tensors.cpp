// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/written_tensors.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <map>

namespace kerf {
namespace {

// `items`: what the tensors are for, inputs or weights of the graph.
template <class Items>
std::vector<at::Tensor> own_written(const Graph& graph, const Items& items,
                                    std::vector<at::Tensor> tensors) {
  std::map<const void*, at::Tensor> copies;  // memory -> its copy, as bytes of one dimension
  const c10::AutoGradMode no_grad(false);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const StorageId storage = graph.value(items[i].value).storage;
    if (!storage.valid() || !graph.is_written(storage) || !tensors[i].defined()) continue;
    at::Tensor& tensor = tensors[i];
    const void* const memory = tensor.storage().data();
    const auto [copy, is_new] = copies.try_emplace(memory);
    if (is_new) {
      const auto elements =
          static_cast<std::int64_t>(tensor.storage().nbytes() / tensor.element_size());
      copy->second = tensor.detach().as_strided({elements}, {1}, 0).clone();
    }
    // No view of the copy: one that was made without history could not be given any by a write.
    const c10::Storage bytes = copy->second.storage();
    at::Tensor own = at::empty({0}, tensor.options().requires_grad(false))
                         .set_(bytes, tensor.storage_offset(), tensor.sizes(), tensor.strides());
    own.set_requires_grad(tensor.is_leaf() && tensor.requires_grad());
    tensor = std::move(own);
  }
  return tensors;
}

}  // namespace

WrittenTensors::WrittenTensors(const Graph& graph, const std::vector<at::Tensor>& weights,
                               const std::vector<at::Tensor>& inputs) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    keep(graph, graph.weights()[i].value, weights[i]);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    keep(graph, graph.inputs()[i].value, inputs[i]);
  }
}

void WrittenTensors::restore() {
  const c10::AutoGradMode no_grad(false);
  for (auto& [tensor, copy] : saved_) tensor.copy_(copy);
}

void WrittenTensors::keep(const Graph& graph, ValueId value, const at::Tensor& tensor) {
  const StorageId storage = graph.value(value).storage;
  if (tensor.defined() && storage.valid() && graph.is_written(storage)) {
    saved_.emplace_back(tensor.detach(), tensor.detach().clone());
  }
}

std::vector<at::Tensor> own_written_inputs(const Graph& graph, std::vector<at::Tensor> inputs) {
  return own_written(graph, graph.inputs(), std::move(inputs));
}

std::vector<at::Tensor> own_written_weights(const Graph& graph, std::vector<at::Tensor> weights) {
  return own_written(graph, graph.weights(), std::move(weights));
}

}  // namespace kerf
