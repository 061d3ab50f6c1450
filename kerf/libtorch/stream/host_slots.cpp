// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/host_slots.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "kerf/libtorch/stream/file_window.h"
#include "kerf/libtorch/stream/mapped_file.h"
#include "kerf/libtorch/stream/pages.h"

namespace kerf {

HostSlots::HostSlots(std::size_t count, std::size_t bytes)
    : count_(count), bytes_(slot_aligned(bytes)), windows_(count) {
  arena_ = at::empty({static_cast<std::int64_t>(count_ * bytes_ + kSlotAlignment)}, at::kByte);
  begin_ = reinterpret_cast<std::byte*>(
      slot_aligned(reinterpret_cast<std::uintptr_t>(arena_.mutable_data_ptr())));
}

at::Tensor HostSlots::view(std::size_t slot, const Piece& piece) const {
  if (piece.window) {
    return at::from_blob(
        piece.window->data(), piece.home.sizes(), piece.home.strides(),
        [held = piece.window](void*) {}, piece.home.options());
  }
  return at::from_blob(
      begin(slot) + piece.offset, piece.home.sizes(), piece.home.strides(),
      [held = arena_](void*) {}, piece.home.options());
}

void HostSlots::fill(std::size_t slot, const std::vector<Piece>& pieces) {
  for (const auto& window : std::exchange(windows_[slot], {})) window->close(slot);
  for (const Piece& piece : pieces) {
    if (!piece.window) continue;
    give_back(begin(slot) + piece.offset, piece.home.nbytes());
    windows_[slot].push_back(piece.window);
  }
  FileWindow::open(windows_[slot], slot, is_awaited_);
  // What is small lies next to what is large in most files, and was read from the disk with it.
  for (const Piece& piece : pieces) {
    if (piece.window) continue;
    read_host(piece.home.const_data_ptr(), piece.home.nbytes(), begin(slot) + piece.offset);
  }
}

// Pages of the arena that a copy was in before: the window takes as much.
void HostSlots::give_back(std::byte* begin, std::size_t bytes) const {
  std::byte* const first =
      begin == page_begin(begin) ? begin : page_begin(begin) + page_bytes(begin, 1);
  std::byte* const last = page_begin(begin + bytes);
  if (first < last) ::madvise(first, static_cast<std::size_t>(last - first), MADV_DONTNEED);
}

// A copy is safe from what happens to its file.
void HostSlots::wait(std::size_t slot) {
  for (const auto& window : windows_[slot]) window->check();
}

}  // namespace kerf
