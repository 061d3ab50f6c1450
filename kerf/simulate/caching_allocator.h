// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's caching allocator of an accelerator as arithmetic: what blocks of a device's memory it
// takes (reserves) for the tensors that a program asks for. One stream, default settings.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/base/units.h"

namespace kerf {

// c10/cuda/CUDACachingAllocator of PyTorch 2.11.
struct AllocatorSizes {
  Bytes smallest{512};           // blocks are multiples of it
  Bytes small_request{1 << 20};  // up to this, from segments that small blocks share
  Bytes small_segment{2 << 20};
  Bytes large_request{10 << 20};   // from this on, a segment of its own
  Bytes middle_segment{20 << 20};  // for requests between the two
  Bytes large_multiple{2 << 20};   // sizes of the segments of large requests
};

using BlockId = Id<struct BlockTag>;

// Each call in time logarithmic in the number of free blocks.
class CachingAllocator {
 public:
  explicit CachingAllocator(AllocatorSizes sizes = {}) : sizes_(sizes) {}

  // The smallest free block that holds it, the first in memory of several; split where enough is
  // left over. Where there is none, a new segment is taken.
  BlockId allocate(Bytes bytes);
  // Joins it with free neighbours of its segment.
  void free(BlockId block);
  // Gives back segments that are free as a whole.
  void empty_cache();

  Bytes allocated() const { return allocated_; }  // blocks in use, rounding included
  Bytes reserved() const { return reserved_; }    // segments
  Bytes peak_allocated() const { return peak_allocated_; }
  Bytes peak_reserved() const { return peak_reserved_; }
  void reset_peaks();

 private:
  struct Block {
    std::int64_t address = 0;
    std::int64_t size = 0;
    BlockId before;  // neighbours in the segment
    BlockId after;
    bool small = false;
    bool used = false;
  };
  struct Free {
    std::int64_t size;
    std::int64_t address;
    BlockId block;
    friend auto operator<=>(const Free&, const Free&) = default;
  };
  using Pool = std::set<Free>;

  std::int64_t segment_size(std::int64_t size) const;
  BlockId new_segment(std::int64_t size, bool small);
  BlockId take_free(std::int64_t size, bool small);
  void split(BlockId id, std::int64_t size);
  // Makes `second`, the block after `first`, a part of it.
  void join(BlockId first, BlockId second);
  Block& at(BlockId id) { return blocks_[id.index()]; }
  Pool& pool(const Block& block) { return pools_[block.small ? 0 : 1]; }
  Free entry(BlockId id) { return {at(id).size, at(id).address, id}; }

  AllocatorSizes sizes_;
  std::vector<Block> blocks_;
  std::vector<BlockId> retired_;  // ids of joined blocks, to be used again
  Pool pools_[2];                 // small, large
  std::int64_t next_address_ = 0;
  Bytes allocated_;
  Bytes reserved_;
  Bytes peak_allocated_;
  Bytes peak_reserved_;

  BlockId make_block(Block block);
};

}  // namespace kerf
