// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// From PyTorch's values to the graph's plain data: the way back of libtorch/convert.h.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>

#include "kerf/graph/argument.h"

namespace kerf {

// The value that stands for a tensor in the graph.
using ValueOf = std::function<ValueId(const at::Tensor&)>;

// What the numbers of a parameter mean: PyTorch hands dtypes, layouts and memory formats on as
// such.
enum class ArgumentForm : std::uint8_t { plain, dtype, layout, memory_format };
ArgumentForm form_of(const c10::Argument& parameter);

// What the graph has no words for (generators, objects) is none. Devices are left open: the stage
// that runs a node decides.
Argument to_argument(const c10::IValue& value, ArgumentForm form, const ValueOf& value_of);

// Throws Error(unsupported_operator) for dtypes that no graph has.
DType to_dtype(c10::ScalarType type);

}  // namespace kerf
