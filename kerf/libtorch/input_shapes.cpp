// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/input_shapes.h"

#include <fmt/format.h>

#include "kerf/base/error.h"
#include "kerf/libtorch/convert.h"

namespace kerf {
namespace {

[[noreturn]] void refuse_input(const GraphInput& input, const Value& value,
                               const at::Tensor& tensor, const std::string& what) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[libtorch.inputs] input '{}' is {}: {}; it was traced as {}; give an "
                          "input of that shape, or trace the model with this one",
                          input.path, describe(c10::IValue(tensor)), what, describe(value)));
}

}  // namespace

std::int64_t check_input_shapes(const Graph& graph, const std::vector<BatchDim>& dims,
                                const std::vector<at::Tensor>& inputs) {
  KERF_CHECK(inputs.size() == graph.inputs().size(), "one tensor for each input of the graph");
  std::int64_t batch = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const GraphInput& input = graph.inputs()[i];
    const Value& value = graph.value(input.value);
    const at::Tensor& tensor = inputs[i];
    if (tensor.layout() != c10::kStrided || tensor.is_meta()) {
      refuse_input(input, value, tensor, tensor.is_meta() ? "it has no data" : "it is sparse");
    }
    if (tensor.dim() != static_cast<std::int64_t>(value.shape.size())) {
      refuse_input(input, value, tensor, fmt::format("it has {} dimensions", tensor.dim()));
    }
    if (tensor.scalar_type() != to_scalar_type(value.dtype)) {
      refuse_input(input, value, tensor, "its dtype differs");
    }
    const BatchDim& at = dims[i];
    if (at.dim >= 0 && batch == 0) {
      batch = tensor.size(at.dim) / at.factor;
      if (batch == 0) refuse_input(input, value, tensor, "the batch is empty");
    }
    for (std::size_t d = 0; d < value.shape.size(); ++d) {
      const std::int64_t expected = value.shape[d].eval(batch);
      if (tensor.size(static_cast<std::int64_t>(d)) == expected) continue;
      refuse_input(input, value, tensor,
                   fmt::format("dimension {} has size {}, expected {}", d,
                               tensor.size(static_cast<std::int64_t>(d)), expected));
    }
  }
  return batch;
}

}  // namespace kerf
