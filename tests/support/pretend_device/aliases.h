// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// CPU tensors over the memory of pretend ones, and back: kernels of the pretend device are
// PyTorch's own for the CPU, run on its memory.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/support/pretend_device/memory.h"

namespace pretend {

// The CPU's view of the tensors of one call. Not owning: the caller keeps the tensors, or the
// blocks.
class Aliases {
 public:
  explicit Aliases(c10::DeviceIndex device) : device_(device) {}

  // A CPU tensor of the same memory; tensors of other devices, and undefined ones, as they are.
  at::Tensor to_cpu(const at::Tensor& tensor);
  // A pretend tensor: the argument it came from, a view of an argument's storage, or new memory
  // with a copy. CPU tensors that share a storage become pretend tensors that share one.
  at::Tensor to_device(const at::Tensor& cpu);
  // Gives an argument the shape, and where the kernel made it larger the memory, of its alias.
  void take_shape_of_alias(const at::Tensor& tensor, const at::Tensor& cpu);

 private:
  struct Pair {
    c10::Storage device, cpu;
    const void* data;  // of both, when the pair was made
  };
  c10::Storage device_storage(const c10::Storage& cpu);

  c10::DeviceIndex device_;
  std::vector<Pair> storages_;
  std::vector<std::pair<at::Tensor, at::Tensor>> arguments_;  // device, cpu
};

// A CPU tensor over the tensor's memory, which it does not keep, on the device or the host.
at::Tensor borrow(const at::Tensor& tensor);
// Notes that the stream's latest task uses the tensor, on the device or in pinned memory.
void note_use(const at::Tensor& tensor, bool write, Stream& stream, const std::string& what);
// New memory for the storage, with what of its contents fits.
void resize_storage(c10::StorageImpl& storage, std::size_t bytes);

}  // namespace pretend
