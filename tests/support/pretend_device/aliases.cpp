// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/aliases.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <cstring>

#include "tests/support/pretend_device/races.h"

namespace pretend {
namespace {

at::Tensor tensor_over(const c10::Storage& storage, c10::DispatchKey key, const at::Tensor& like) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage),
                                                       c10::DispatchKeySet(key), like.dtype());
  auto* impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  // Decides the type of a result: a number does not widen a tensor.
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return made;
}

// Reads alone: who writes says so first, see note_use.
c10::Storage borrow_storage(const c10::Storage& storage) {
  const c10::Device cpu(c10::kCPU);
  return {c10::Storage::use_byte_size_t(), storage.nbytes(),
          c10::DataPtr(const_cast<void*>(storage.data()), cpu), c10::GetCPUAllocator(), true};
}

}  // namespace

at::Tensor borrow(const at::Tensor& tensor) {
  return tensor_over(borrow_storage(tensor.storage()), c10::DispatchKey::CPU, tensor);
}

at::Tensor Aliases::to_cpu(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return tensor;
  for (const auto& [device, cpu] : arguments_) {
    if (device.is_same(tensor)) return cpu;
  }
  const auto& storage = tensor.storage();
  auto pair = std::find_if(storages_.begin(), storages_.end(),
                           [&](const Pair& known) { return known.device.is_alias_of(storage); });
  if (pair == storages_.end()) {
    pair =
        storages_.insert(storages_.end(), Pair{storage, borrow_storage(storage), storage.data()});
  }
  auto cpu = tensor_over(pair->cpu, c10::DispatchKey::CPU, tensor);
  arguments_.emplace_back(tensor, cpu);
  return cpu;
}

c10::Storage Aliases::device_storage(const c10::Storage& cpu) {
  for (auto& pair : storages_) {
    if (!pair.cpu.is_alias_of(cpu)) continue;
    if (cpu.data() != pair.data || cpu.nbytes() != pair.device.nbytes()) {
      // The kernel made the storage larger: out= of another size.
      const bool moved = cpu.data() != pair.data;
      resize_storage(*pair.device.unsafeGetStorageImpl(), cpu.nbytes());
      if (moved && cpu.nbytes() > 0) {
        std::memcpy(pair.device.mutable_data(), cpu.data(), cpu.nbytes());
      }
      pair.data = cpu.data();
    }
    return pair.device;
  }
  c10::Storage made(c10::Storage::use_byte_size_t(), cpu.nbytes(),
                    allocate_on(device_, cpu.nbytes()), &device_allocator(), true);
  if (cpu.nbytes() > 0) std::memcpy(made.mutable_data(), cpu.data(), cpu.nbytes());
  storages_.push_back({made, cpu, cpu.data()});
  return made;
}

at::Tensor Aliases::to_device(const at::Tensor& cpu) {
  if (!cpu.defined()) return cpu;
  for (const auto& [device, alias] : arguments_) {
    if (alias.is_same(cpu)) return device;
  }
  return tensor_over(device_storage(cpu.storage()), c10::DispatchKey::PrivateUse1, cpu);
}

void Aliases::take_shape_of_alias(const at::Tensor& tensor, const at::Tensor& cpu) {
  if (!tensor.defined() || !tensor.is_privateuseone()) return;
  auto storage = device_storage(cpu.storage());
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!storage.is_alias_of(tensor.storage())) impl->set_storage_keep_dtype(std::move(storage));
  if (tensor.sizes() != cpu.sizes() || tensor.strides() != cpu.strides() ||
      tensor.storage_offset() != cpu.storage_offset()) {
    impl->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
  }
}

void note_use(const at::Tensor& tensor, bool write, Stream& stream, const std::string& what) {
  if (!tensor.defined() || tensor.numel() == 0) return;
  if (write) tensor.storage().mutable_data();  // as a kernel that writes would ask for it
  const auto* data = static_cast<const std::byte*>(tensor.const_data_ptr());
  const auto block = find_block(data);
  if (!block) return;
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const auto begin = static_cast<std::size_t>(data - block->data);
  const auto bytes = (static_cast<std::size_t>(last) + 1) * tensor.element_size();
  note_access(*block, begin, std::min(begin + bytes, block->bytes), write, stream, what);
}

void resize_storage(c10::StorageImpl& storage, std::size_t bytes) {
  const auto device = storage.device().index();
  const auto kept = std::min(bytes, storage.nbytes());
  auto fresh = allocate_on(device, bytes);
  if (kept > 0) {
    Stream& stream = current_stream(device);
    std::memcpy(fresh.mutable_get(), storage.data(), kept);
    issue(stream);
  }
  storage.set_data_ptr(std::move(fresh));  // what this returns is freed here
  storage.set_nbytes(bytes);
}

}  // namespace pretend
