// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators that make, resize, share or read memory of the pretend device, and compute nothing.
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "tests/support/pretend_device/aliases.h"

namespace pretend {
namespace {

c10::DeviceGuard guard_for(std::optional<c10::Device> device) {
  return c10::DeviceGuard(device.value_or(c10::Device(c10::kPrivateUse1)));
}

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                 std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                 std::optional<bool> pinned, std::optional<c10::MemoryFormat> format) {
  TORCH_CHECK(layout.value_or(c10::kStrided) == c10::kStrided, "pretend: only strided tensors");
  TORCH_CHECK(!pinned.value_or(false), "pretend: only dense CPU tensors can be pinned");
  const auto guard = guard_for(device);
  return at::detail::empty_generic(size, &device_allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                         std::optional<c10::Device> device, std::optional<bool> pinned) {
  TORCH_CHECK(layout.value_or(c10::kStrided) == c10::kStrided, "pretend: only strided tensors");
  TORCH_CHECK(!pinned.value_or(false), "pretend: only dense CPU tensors can be pinned");
  const auto guard = guard_for(device);
  return at::detail::empty_strided_generic(size, stride, &device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

// Makes the storage hold the tensor: a task of the current stream, which is taken at once.
void grow_to_hold(const at::Tensor& tensor) {
  const auto bytes =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size(),
                                       static_cast<std::size_t>(tensor.storage_offset()));
  auto& storage = *tensor.storage().unsafeGetStorageImpl();
  if (tensor.numel() == 0 || bytes <= storage.nbytes()) return;
  Stream::Turn turn(current_stream(tensor.get_device()));
  resize_storage(storage, bytes);
}

const at::Tensor& resize(const at::Tensor& self, c10::IntArrayRef size,
                         std::optional<c10::MemoryFormat> format) {
  if (self.sizes() != size) {
    self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
    grow_to_hold(self);
  }
  if (format) self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage_at(at::Tensor& self, at::Storage source, std::int64_t offset,
                           c10::IntArrayRef size, c10::IntArrayRef stride) {
  TORCH_CHECK(source.device().is_privateuseone(), "pretend: cannot set a tensor to a storage of ",
              source.device());
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(source));
  if (stride.data() == nullptr) {
    impl->set_sizes_contiguous(size);
    impl->set_storage_offset(offset);
  } else {
    impl->set_sizes_and_strides(size, stride, offset);
  }
  grow_to_hold(self);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto size = static_cast<std::int64_t>(source.nbytes() / self.element_size());
  return set_storage_at(self, std::move(source), 0, size, {});
}

at::Tensor& set_nothing(at::Tensor& self) {
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, allocate_on(self.get_device(), 0),
                    &device_allocator(), true);
  return set_storage_at(self, std::move(none), 0, {0}, {});
}

at::Tensor as_strided(const at::Tensor& self, c10::IntArrayRef size, c10::IntArrayRef stride,
                      std::optional<std::int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

void record_stream_of(at::Tensor& self, c10::Stream stream) {
  record_stream(self.storage().data_ptr(), find_stream(stream));
}

// `parameter.data = x` moves a parameter between the CPU and the device, as it does on other
// devices; module.to() keeps tied parameters tied through it.
bool may_share_data(const at::Tensor& self, const at::Tensor& from) {
  const auto dense = [](const at::Tensor& tensor) {
    return tensor.layout() == c10::kStrided && (tensor.is_cpu() || tensor.is_privateuseone());
  };
  return self.key_set() == from.key_set() || (dense(self) && dense(from));
}

at::Scalar local_scalar(const at::Tensor& self) {
  Stream& stream = current_stream(self.get_device());
  {
    std::lock_guard lock(issue_mutex());
    issue(stream);
    note_use(self, false, stream, "item()");
  }
  synchronize(stream);
  return at::_local_scalar_dense(Aliases(stream.device).to_cpu(self));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("resize_", &resize);
  m.impl("set_.source_Storage_storage_offset", &set_storage_at);
  m.impl("set_.source_Storage", &set_storage);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
  m.impl("set_", &set_nothing);
  m.impl("as_strided", &as_strided);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("record_stream", &record_stream_of);
  m.impl("_has_compatible_shallow_copy_type", &may_share_data);
}

}  // namespace pretend
