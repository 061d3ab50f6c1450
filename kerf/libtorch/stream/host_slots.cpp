// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/host_slots.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>

#include "kerf/libtorch/stream/mapped_file.h"

namespace kerf {

HostSlots::HostSlots(std::size_t count, std::size_t bytes)
    : count_(count), bytes_(slot_aligned(bytes)) {
  arena_ = at::empty({static_cast<std::int64_t>(count_ * bytes_ + kSlotAlignment)}, at::kByte);
  begin_ = reinterpret_cast<std::byte*>(
      slot_aligned(reinterpret_cast<std::uintptr_t>(arena_.mutable_data_ptr())));
}

at::Tensor HostSlots::view(std::size_t slot, const Piece& piece) const {
  return at::from_blob(
      begin(slot) + piece.offset, piece.home.sizes(), [held = arena_](void*) {},
      piece.home.options());
}

void HostSlots::fill(std::size_t slot, const std::vector<Piece>& pieces) {
  for (const Piece& piece : pieces) {
    read_host(piece.home.const_data_ptr(), piece.home.nbytes(), begin(slot) + piece.offset);
  }
}

}  // namespace kerf
