// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/host_weight.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "kerf/libtorch/stream/mapped_file.h"

namespace kerf {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 17;  // elements

}  // namespace

HostWeight HostWeight::in_order() const {
  const at::Tensor plain = stored_.detach().resolve_conj().resolve_neg();
  return {plain.is_non_overlapping_and_dense() ? plain : plain.contiguous(), type_};
}

void HostWeight::read_stored(std::size_t first, std::size_t count, void* to) const {
  const std::size_t size = stored_.element_size();
  const auto* const begin = static_cast<const std::byte*>(stored_.const_data_ptr());
  read_host(begin + first * size, count * size, to);
}

template <typename Take>
void HostWeight::by_piece(std::size_t first, std::size_t count, const Take& take) const {
  const at::Tensor room =
      at::empty({static_cast<std::int64_t>(std::min(count, kPiece))}, stored_.scalar_type());
  for (std::size_t done = 0; done < count; done += kPiece) {
    const std::size_t piece = std::min(kPiece, count - done);
    read_stored(first + done, piece, room.mutable_data_ptr());
    take(done, room.narrow(0, 0, static_cast<std::int64_t>(piece)));
  }
}

void HostWeight::read(std::size_t first, std::size_t count, void* to) const {
  if (type_ == stored_.scalar_type()) return read_stored(first, count, to);
  auto* const begin = static_cast<std::byte*>(to);
  by_piece(first, count, [&](std::size_t done, const at::Tensor& piece) {
    at::from_blob(begin + done * c10::elementSize(type_), piece.sizes(), type_).copy_(piece);
  });
}

at::Tensor HostWeight::load(at::Device device) const {
  const HostWeight plain = in_order();
  at::Tensor out = at::empty_strided(sizes(), plain.strides(), at::dtype(type_).device(device));
  if (device.is_cpu()) {
    plain.read(0, size(), out.mutable_data_ptr());
    return out;
  }
  const at::Tensor flat = out.as_strided({out.numel()}, {1});
  plain.by_piece(0, size(), [&](std::size_t done, const at::Tensor& piece) {
    flat.narrow(0, static_cast<std::int64_t>(done), piece.numel()).copy_(piece.to(device));
  });
  return out;
}

std::vector<HostWeight> as_they_are(const std::vector<at::Tensor>& weights) {
  std::vector<HostWeight> out;
  for (const at::Tensor& weight : weights) out.emplace_back(weight, weight.scalar_type());
  return out;
}

}  // namespace kerf
