// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/expected.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "kerf/base/error.h"
#include "kerf/libtorch/convert.h"

namespace kerf {
namespace {

bool has_shape(const at::Tensor& tensor, const Sizes& shape, std::int64_t batch) {
  if (tensor.dim() != static_cast<std::int64_t>(shape.size())) return false;
  std::int64_t d = 0;
  for (const Expr& size : shape) {
    if (tensor.size(d++) != size.eval(batch)) return false;
  }
  return true;
}

std::string shape_at(const Value& value, std::int64_t batch) {
  std::string sizes;
  for (const Expr& size : value.shape) {
    sizes += (sizes.empty() ? "" : ", ") + std::to_string(size.eval(batch));
  }
  return fmt::format("{}[{}]", to_string(value.dtype), sizes);
}

}  // namespace

void check_made(const Graph& graph, ValueId id, const c10::IValue& made, std::int64_t batch,
                bool dtype_too) {
  const Value& value = graph.value(id);
  if (value.scalar) return;
  if (made.isTensor() && made.toTensor().defined()) {
    const at::Tensor& tensor = made.toTensor();
    const bool same_dtype = !dtype_too || tensor.scalar_type() == to_scalar_type(value.dtype);
    if (same_dtype && has_shape(tensor, value.shape, batch)) return;
  }
  const std::string where =
      value.origin == Origin::node ? ", made by " + graph.describe(value.producer) : "";
  throw Error(
      ErrorKind::run_failed,
      fmt::format("[libtorch.run] value '{}'{} is {}; expected {}, which is {} for a "
                  "micro-batch of {}; give batches of a size for which the model makes that shape, "
                  "or trace it with inputs like these",
                  value.name, where, describe(made), shape_at(value, batch), describe(value),
                  batch));
}

}  // namespace kerf
