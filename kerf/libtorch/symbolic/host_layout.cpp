// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/symbolic/host_layout.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/core/stack.h>

#include <algorithm>
#include <numeric>

namespace kerf {
namespace {

// PyTorch's own choice for the host, which reads sizes and settings, and takes the same arguments.
bool is_fused_on_host(c10::ArrayRef<const c10::IValue> inputs) {
  static const auto choice =
      c10::Dispatcher::singleton().findSchema({"aten::_fused_sdp_choice", ""});
  if (!choice || choice->schema().arguments().size() != inputs.size()) return false;
  torch::jit::Stack stack(inputs.begin(), inputs.end());
  try {
    choice->redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const c10::Error&) {
    return false;
  }
  constexpr std::int64_t kPlain = 0;
  return !stack.empty() && stack.back().isInt() && stack.back().toInt() > kPlain;
}

// Dense, in the order of the given tensor's strides: what empty_like() makes.
std::vector<std::int64_t> dense_as(const at::Tensor& like, c10::IntArrayRef sizes) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return like.strides()[a] > like.strides()[b];
  });
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t stride = 1;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    strides[*it] = stride;
    stride *= std::max<std::int64_t>(sizes[*it], 1);
  }
  return strides;
}

bool is_convolution(std::string_view op) {
  return op.starts_with("aten.conv2d.") || op.starts_with("aten.conv3d.") ||
         op.starts_with("aten.conv_transpose2d.") || op.starts_with("aten.conv_transpose3d.") ||
         op == "aten.convolution.default";
}

HostLayout of_convolution(const at::Tensor& input, const at::Tensor& weight) {
  if (!input.is_meta() || !weight.defined()) return {};
  for (const at::Tensor* const tensor : {&input, &weight}) {
    const c10::MemoryFormat format = tensor->suggest_memory_format();
    if (format != c10::MemoryFormat::Contiguous) return {{}, format};
  }
  return {};
}

// Whose kernels write row by row, or channels last where the input lies so.
HostLayout of_batch_norm(const at::Tensor& input) {
  if (!input.is_meta()) return {};
  const c10::MemoryFormat format = input.suggest_memory_format();
  if (format != c10::MemoryFormat::Contiguous) return {{}, format};
  return {c10::TensorType::contiguousStridesOf(input.sizes()), std::nullopt};
}

HostLayout of_attention(c10::ArrayRef<const c10::IValue> inputs) {
  const at::Tensor& query = inputs[0].toTensor();
  const at::Tensor& value = inputs[2].toTensor();
  if (query.dim() != 4 || !query.is_meta() || !is_fused_on_host(inputs)) return {};
  std::vector<std::int64_t> sizes = query.sizes().vec();
  sizes.back() = value.size(-1);
  return {dense_as(query, sizes), std::nullopt};
}

std::vector<std::int64_t> strides_of(const at::Tensor& result, const HostLayout& layout) {
  if (!layout.format) return layout.strides;
  if (*layout.format == c10::MemoryFormat::ChannelsLast && result.dim() == 4) {
    return c10::get_channels_last_strides_2d(result.sizes());
  }
  if (*layout.format == c10::MemoryFormat::ChannelsLast3d && result.dim() == 5) {
    return c10::get_channels_last_strides_3d(result.sizes());
  }
  return result.strides().vec();
}

}  // namespace

HostLayout host_layout(std::string_view op, c10::ArrayRef<const c10::IValue> inputs) {
  if (op == "aten.scaled_dot_product_attention.default" && inputs.size() >= 3) {
    return of_attention(inputs);
  }
  if (is_convolution(op) && inputs.size() >= 2) {
    return of_convolution(inputs[0].toTensor(), inputs[1].toTensor());
  }
  if (op == "aten.batch_norm.default" && !inputs.empty()) {
    return of_batch_norm(inputs[0].toTensor());
  }
  return {};
}

void lay_out(const at::Tensor& result, const HostLayout& layout) {
  if (!result.defined() || !result.is_meta()) return;
  const std::vector<std::int64_t> strides = strides_of(result, layout);
  if (result.dim() != static_cast<std::int64_t>(strides.size())) return;
  result.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), strides);
}

}  // namespace kerf
