// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Where a tensor without data would lie otherwise than on a host. Graphs are as traced on a host,
// and profile/saved tells from there how an accelerator lays things out. Private to
// libtorch/symbolic.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace kerf {

// Strides of the first result of "aten.scaled_dot_product_attention.default": for tensors without
// data PyTorch takes the plain kernel, whose result lies by head, where the host's fused one lays
// it out as the queries lie. Empty where both agree, and for other operators.
std::vector<std::int64_t> host_strides(std::string_view op,
                                       c10::ArrayRef<const c10::IValue> inputs);

}  // namespace kerf
