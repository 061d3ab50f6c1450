// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace kerf {

class FileWindow;

// Where a weight of a slot begins.
inline constexpr std::size_t kSlotAlignment = 256;

inline std::size_t slot_aligned(std::size_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

// Memory that units take turns in, on one device. `fill` is called by the thread that copies, the
// others by the one that computes; `fill` of a slot never at the same time as they.
class StreamSlots {
 public:
  struct Piece {
    at::Tensor home;         // without gaps, on the host
    std::size_t offset = 0;  // in the slot
    bool is_pinned = false;  // a device can fetch it by itself
    std::shared_ptr<FileWindow> window =
        nullptr;  // on the host: the home's pages, which need no copy
  };

  virtual ~StreamSlots() = default;

  virtual std::size_t size() const = 0;
  virtual at::Device device() const = 0;
  // A piece as it lies in a slot.
  virtual at::Tensor view(std::size_t slot, const Piece& piece) const = 0;

  // A fill of no more bytes is over before another thread is awake, and may be any thread's.
  virtual std::size_t quick_bytes() const { return 0; }
  // Copies, or queues the copies; not before what was released has been read.
  virtual void fill(std::size_t slot, const std::vector<Piece>& pieces) = 0;
  // Somebody does nothing until a fill is over.
  virtual void set_awaited(bool) {}
  // What is computed from now on reads what the last `fill` has brought.
  virtual void wait(std::size_t slot) = 0;
  // What reads the slot has been issued.
  virtual void release(std::size_t slot) = 0;
  // All copies that were queued are over: what they copied may go.
  virtual void settle() = 0;
};

}  // namespace kerf
