// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/cold_caches.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>

namespace kerf {
namespace {

constexpr std::int64_t kLineBytes = 64;  // larger lines are read twice
constexpr std::int64_t kLinesOfOneThread = 512;

// Each thread its part, as operators divide tensors.
void read_lines(const char* data, std::size_t bytes) {
  const auto lines = static_cast<std::int64_t>(bytes) / kLineBytes;
  at::parallel_for(0, lines, kLinesOfOneThread, [&](std::int64_t begin, std::int64_t end) {
    char sum = 0;
    for (std::int64_t i = begin; i < end; ++i) sum = static_cast<char>(sum + data[i * kLineBytes]);
    [[maybe_unused]] volatile char sink = sum;  // so that the reads are made
  });
}

void read_tensor(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cpu() || tensor.layout() != c10::kStrided) return;
  if (tensor.numel() == 0) return;
  const auto* const data = static_cast<const char*>(tensor.const_data_ptr());
  read_lines(data,
             at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize()));
}

}  // namespace

// Written once: pages that never were are all one page of zeros.
ColdCaches::ColdCaches(Bytes bytes) : others_(static_cast<std::size_t>(bytes.count), 1) {}

void ColdCaches::prepare(std::span<const ParcelPtr> made) const {
  if (others_.empty()) return;
  read_lines(others_.data(), others_.size());
  for (const ParcelPtr& each : made) {
    if (each == nullptr) continue;  // a gradient that nobody has
    const c10::IValue& value = static_cast<const TorchParcel&>(*each).value;
    if (value.isTensor()) read_tensor(value.toTensor());
  }
}

}  // namespace kerf
