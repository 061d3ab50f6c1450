// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <vector>

#include "kerf/libtorch/stream/stream_slots.h"

namespace kerf {

// In an accelerator's memory, filled by copies on a stream of their own. What the device cannot
// fetch by itself (files, memory that is not pinned) goes through two small pinned buffers.
class DeviceSlots : public StreamSlots {
 public:
  DeviceSlots(at::Device device, std::size_t count, std::size_t bytes);
  ~DeviceSlots() override;
  DeviceSlots(const DeviceSlots&) = delete;
  DeviceSlots& operator=(const DeviceSlots&) = delete;

  std::size_t size() const override { return ready_.size(); }
  at::Device device() const override { return arena_.device(); }
  // Writes to it are watched, see watch_writes.
  at::Tensor view(std::size_t slot, const Piece& piece) const override;
  void fill(std::size_t slot, const std::vector<Piece>& pieces) override;
  void wait(std::size_t slot) override;
  void release(std::size_t slot) override;
  void settle() override { stream_.synchronize(); }

 private:
  struct Staging {
    at::Tensor memory;
    c10::Event read;  // the device has it
  };
  // As many pieces from `first` on as one copy brings. Returns how many.
  std::size_t copy(std::size_t slot, const std::vector<Piece>& pieces, std::size_t first);
  void copy_staged(std::size_t slot, const Piece& piece);
  at::Tensor bytes_at(std::size_t slot, std::size_t offset, std::size_t bytes) const;

  std::size_t bytes_;
  at::Tensor arena_;
  c10::Stream stream_;
  std::vector<c10::Event> ready_;  // by slot: it has been filled
  std::vector<c10::Event> free_;   // by slot: it has been read
  std::vector<Staging> staging_;   // two, once they are needed
  std::size_t next_staging_ = 0;
};

}  // namespace kerf
