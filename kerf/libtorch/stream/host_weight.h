// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace kerf {

// The numbers of a tensor of the host as another type: a checkpoint has bf16 where the model has
// float32. They are read and converted a few MiB at a time, and from the file itself where they
// are mapped: on their way they take no memory to speak of.
class HostWeight {
 public:
  HostWeight(at::Tensor stored, at::ScalarType type) : stored_(std::move(stored)), type_(type) {}

  at::ScalarType type() const { return type_; }
  at::IntArrayRef sizes() const { return stored_.sizes(); }
  at::IntArrayRef strides() const { return stored_.strides(); }
  std::size_t size() const { return static_cast<std::size_t>(stored_.numel()); }
  std::size_t nbytes() const { return size() * c10::elementSize(type_); }

  // The same, its elements one after the other in memory, whatever strides say which is which: the
  // row-major order if there are gaps or elements that are one.
  HostWeight in_order() const;
  // Elements of one that is in order. Throws Error(io) where the file was cut off.
  void read(std::size_t first, std::size_t count, void* to) const;
  // All of them in new memory of a device. They are converted there.
  at::Tensor load(at::Device device) const;

 private:
  void read_stored(std::size_t first, std::size_t count, void* to) const;
  template <typename Take>  // (first, a tensor of elements as they are stored)
  void by_piece(std::size_t first, std::size_t count, const Take& take) const;

  at::Tensor stored_;
  at::ScalarType type_;
};

// With the types they have.
std::vector<HostWeight> as_they_are(const std::vector<at::Tensor>& weights);

}  // namespace kerf
