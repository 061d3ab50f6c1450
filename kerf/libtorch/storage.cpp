// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/storage.h"

namespace kerf {
namespace {

at::Tensor make_view(const c10::Storage& storage, c10::DispatchKeySet keys,
                     const caffe2::TypeMeta& dtype, c10::IntArrayRef sizes,
                     c10::IntArrayRef strides, std::int64_t offset) {
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), keys, dtype);
  view.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return view;
}

}  // namespace

at::Tensor flat_bytes(const at::Tensor& tensor) {
  const auto size = static_cast<std::int64_t>(tensor.storage().nbytes());
  return make_view(tensor.storage(), tensor.key_set(), caffe2::TypeMeta::Make<std::uint8_t>(),
                   {size}, {1}, 0);
}

at::Tensor flat_words(const at::Tensor& tensor) {
  const auto size = static_cast<std::int64_t>(tensor.storage().nbytes());
  constexpr auto kWord = static_cast<std::int64_t>(sizeof(std::int64_t));
  if (size % kWord != 0) return flat_bytes(tensor);
  return make_view(tensor.storage(), tensor.key_set(), caffe2::TypeMeta::Make<std::int64_t>(),
                   {size / kWord}, {1}, 0);
}

at::Tensor view_of(const c10::Storage& storage, const at::Tensor& like) {
  return make_view(storage, like.key_set(), like.dtype(), like.sizes(), like.strides(),
                   like.storage_offset());
}

}  // namespace kerf
