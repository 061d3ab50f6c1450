// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/device_slots.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdint>

#include "kerf/libtorch/stream/mapped_file.h"
#include "kerf/libtorch/stream/pinned_arena.h"
#include "kerf/libtorch/stream/write_watch.h"
#include "kerf/libtorch/streams.h"

namespace kerf {
namespace {

constexpr std::size_t kStagingBytes = 16 << 20;
constexpr std::size_t kNumStaging = 2;  // one is written while the other is read

}  // namespace

DeviceSlots::DeviceSlots(at::Device device, std::size_t count, std::size_t bytes)
    : bytes_(slot_aligned(bytes)),
      arena_(at::empty({static_cast<std::int64_t>(count * bytes_)},
                       at::TensorOptions(at::kByte).device(device))),
      stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(arena_.device())) {
  for (std::size_t s = 0; s < count; ++s) {
    ready_.emplace_back(device.type());
    free_.emplace_back(device.type());
    // The memory may have had another owner whose work is still queued.
    release(s);
  }
}

DeviceSlots::~DeviceSlots() { stream_.synchronize(); }

at::Tensor DeviceSlots::bytes_at(std::size_t slot, std::size_t offset, std::size_t bytes) const {
  return arena_.narrow(0, static_cast<std::int64_t>(slot * bytes_ + offset),
                       static_cast<std::int64_t>(bytes));
}

at::Tensor DeviceSlots::view(std::size_t slot, const Piece& piece) const {
  auto* const begin = static_cast<std::byte*>(arena_.mutable_data_ptr()) + slot * bytes_;
  const auto nothing = [](void*) {};  // those who keep a view are given a copy, see let_go
  at::Tensor view =
      make_watched(begin + piece.offset, +nothing, piece.home.options().device(arena_.device()),
                   piece.home.sizes(), piece.home.strides());
  return view;
}

void DeviceSlots::fill(std::size_t slot, const std::vector<Piece>& pieces) {
  const c10::StreamGuard guard(stream_);
  free_[slot].block(stream_);
  for (std::size_t p = 0; p < pieces.size();) p += copy(slot, pieces, p);
  ready_[slot].record(stream_);
}

void DeviceSlots::wait(std::size_t slot) { ready_[slot].block(current_stream(device())); }

void DeviceSlots::release(std::size_t slot) { free_[slot].record(current_stream(device())); }

// Pinned pieces that lie next to each other as they do in the slot go as one.
std::size_t DeviceSlots::copy(std::size_t slot, const std::vector<Piece>& pieces,
                              std::size_t first) {
  const Piece& piece = pieces[first];
  if (!piece.is_pinned) {
    copy_staged(slot, piece);
    return 1;
  }
  const auto* const from = static_cast<const std::byte*>(piece.home.const_data_ptr());
  std::size_t last = first;
  while (last + 1 < pieces.size() && pieces[last + 1].is_pinned &&
         PinnedArena::in_one_block(from, pieces[last + 1].home.const_data_ptr()) &&
         pieces[last + 1].home.const_data_ptr() ==
             from + (pieces[last + 1].offset - piece.offset)) {
    ++last;
  }
  const std::size_t bytes = pieces[last].offset + pieces[last].home.nbytes() - piece.offset;
  if (bytes > 0) {
    const at::Tensor source =
        at::from_blob(const_cast<std::byte*>(from), {static_cast<std::int64_t>(bytes)}, at::kByte);
    bytes_at(slot, piece.offset, bytes).copy_(source, /*non_blocking=*/true);
  }
  return last - first + 1;
}

void DeviceSlots::copy_staged(std::size_t slot, const Piece& piece) {
  while (staging_.size() < kNumStaging) {
    staging_.push_back({pinned_bytes(kStagingBytes), c10::Event(device().type())});
    staging_.back().read.record(stream_);
  }
  const auto* const from = static_cast<const std::byte*>(piece.home.const_data_ptr());
  for (std::size_t done = 0; done < piece.home.nbytes();) {
    const std::size_t bytes = std::min(piece.home.nbytes() - done, kStagingBytes);
    Staging& staging = staging_[next_staging_++ % kNumStaging];
    staging.read.synchronize();
    read_host(from + done, bytes, staging.memory.mutable_data_ptr());
    bytes_at(slot, piece.offset + done, bytes)
        .copy_(staging.memory.narrow(0, 0, static_cast<std::int64_t>(bytes)),
               /*non_blocking=*/true);
    staging.read.record(stream_);
    done += bytes;
  }
}

}  // namespace kerf
