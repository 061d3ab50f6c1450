// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// From the graph's plain data to PyTorch's values.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "kerf/device/device.h"
#include "kerf/graph/graph.h"

namespace kerf {

c10::ScalarType to_scalar_type(DType dtype);
std::optional<DType> find_dtype(c10::ScalarType type);  // nullopt: quantized types and the like
// "cpu:1" -> cpu (logical CPU devices share PyTorch's one), "cuda:0#1" -> cuda:0.
c10::Device to_torch_device(const Device& device);

// A constant argument as the schema's type wants it: ints become doubles for float parameters, one
// int becomes a list for int[2], and so on. `batch` is B; `device` the stage's. Throws
// Error(unsupported_operator) when the two do not fit.
c10::IValue to_ivalue(const Argument& argument, const c10::TypePtr& type, std::int64_t batch,
                      c10::Device device);

// "f32[2, 3] on cpu" and the like, for messages; of a traced value, "f32[B, 3]".
std::string describe(const c10::IValue& value);
std::string describe(const Value& value);

}  // namespace kerf
