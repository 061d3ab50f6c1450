// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "kerf/libtorch/stream/host_weight.h"

namespace kerf {

// Memory of the host that accelerators fetch from by themselves. Throws what the allocator throws.
at::Tensor pinned_bytes(std::size_t bytes);

// Pinned memory that units' weights move to, one unit after the other, laid out as in a slot: one
// copy brings most of a unit. Taken in blocks of powers of two, to which allocators round up.
//
//   PinnedArena arena(bytes of all units);
//   for each unit:  weights = arena.take(weights);
//
// The weights keep the memory they lie in; the arena may go before them.
class PinnedArena {
 public:
  explicit PinnedArena(std::size_t bytes) : bytes_left_(bytes) {}

  // Copies of them, each watched, see watch_writes.
  std::vector<at::Tensor> take(const std::vector<HostWeight>& weights);
  // Bytes that were to be pinned and could not be: they are in ordinary memory.
  std::size_t not_pinned() const { return not_pinned_; }

  // Do both addresses lie in one block of an arena, so that one copy may go from the first to the
  // other? Both are where weights begin.
  static bool in_one_block(const void* a, const void* b);

 private:
  // A place for so many bytes, in this block or the next.
  std::byte* place(std::size_t bytes);

  // A new block for a weight, and those after it.
  void take_block(std::size_t bytes);

  // At the end of a block less than a weight is left unused. Larger ones leave less in all, and are
  // free again later when their weights go home one by one. Halved where memory is short.
  std::size_t largest_block_ = std::size_t{2} << 30;
  at::Tensor block_;
  std::size_t used_ = 0;  // of the block
  std::size_t bytes_left_;
  std::size_t not_pinned_ = 0;
};

}  // namespace kerf
