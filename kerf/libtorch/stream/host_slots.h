// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "kerf/libtorch/stream/stream_slots.h"

namespace kerf {

// In the host's memory: filled from other memory, and from files. What is large and in a file is
// not copied: the slot has its pages, and they count as the memory that a copy would take.
class HostSlots : public StreamSlots {
 public:
  HostSlots(std::size_t count, std::size_t bytes);

  std::size_t size() const override { return count_; }
  at::Device device() const override { return at::kCPU; }
  at::Tensor view(std::size_t slot, const Piece& piece) const override;
  std::size_t quick_bytes() const override { return 16 << 10; }
  void fill(std::size_t slot, const std::vector<Piece>& pieces) override;
  void set_awaited(bool is_awaited) override { is_awaited_ = is_awaited; }
  void wait(std::size_t slot) override;
  void release(std::size_t) override {}  // what read it is over: the host does one thing at a time
  void settle() override {}

 private:
  std::byte* begin(std::size_t slot) const { return begin_ + slot * bytes_; }
  void give_back(std::byte* begin, std::size_t bytes) const;

  std::size_t count_;
  std::size_t bytes_;
  at::Tensor arena_;
  std::byte* begin_;
  std::atomic<bool> is_awaited_ = false;
  std::vector<std::vector<std::shared_ptr<FileWindow>>> windows_;  // by slot: open
};

}  // namespace kerf
