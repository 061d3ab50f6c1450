// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Where a tensor without data would lie otherwise than on a host. Graphs are as traced on a host,
// and profile/saved tells from there how an accelerator lays things out. Private to
// libtorch/symbolic.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace kerf {

// How the first result lies where it lies otherwise; both empty where both agree.
struct HostLayout {
  std::vector<std::int64_t> strides;
  std::optional<c10::MemoryFormat> format;
};

// - "aten.scaled_dot_product_attention.default": for tensors without data PyTorch takes the plain
//   kernel, whose result lies by head; the host's fused one lays it out as the queries lie.
// - Convolutions: results lie channels last where the input or the weight does, which PyTorch does
//   not follow for tensors without data.
// - Batch norms: results lie row by row, or channels last; without data they lie as the input does.
HostLayout host_layout(std::string_view op, c10::ArrayRef<const c10::IValue> inputs);

// The tensor itself is laid out: what follows is called as it would be on a host.
void lay_out(const at::Tensor& result, const HostLayout& layout);

}  // namespace kerf
