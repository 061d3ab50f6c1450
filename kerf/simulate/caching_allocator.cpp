// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/caching_allocator.h"

#include <algorithm>

#include "kerf/base/error.h"

namespace kerf {
namespace {

std::int64_t round_up(std::int64_t size, std::int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

}  // namespace

std::int64_t CachingAllocator::segment_size(std::int64_t size) const {
  if (size <= sizes_.small_request.count) return sizes_.small_segment.count;
  if (size < sizes_.large_request.count) return sizes_.middle_segment.count;
  return round_up(size, sizes_.large_multiple.count);
}

BlockId CachingAllocator::make_block(Block block) {
  if (retired_.empty()) {
    blocks_.push_back(block);
    return BlockId{blocks_.size() - 1};
  }
  const BlockId id = retired_.back();
  retired_.pop_back();
  at(id) = block;
  return id;
}

BlockId CachingAllocator::new_segment(std::int64_t size, bool small) {
  const std::int64_t bytes = segment_size(size);
  const BlockId id = make_block({next_address_, bytes, {}, {}, small, false});
  next_address_ += bytes;
  reserved_ += Bytes{bytes};
  peak_reserved_ = std::max(peak_reserved_, reserved_);
  return id;
}

BlockId CachingAllocator::take_free(std::int64_t size, bool small) {
  Pool& free = pools_[small ? 0 : 1];
  const auto found = free.lower_bound(Free{size, -1, BlockId{0}});
  if (found == free.end()) return new_segment(size, small);
  const BlockId id = found->block;
  free.erase(found);
  return id;
}

void CachingAllocator::split(BlockId id, std::int64_t size) {
  const Block whole = at(id);
  const BlockId rest =
      make_block({whole.address + size, whole.size - size, id, whole.after, whole.small, false});
  if (whole.after.valid()) at(whole.after).before = rest;
  at(id).after = rest;
  at(id).size = size;
  pool(whole).insert(entry(rest));
}

BlockId CachingAllocator::allocate(Bytes bytes) {
  KERF_CHECK(bytes.count > 0, "blocks have bytes");
  const std::int64_t size = round_up(bytes.count, sizes_.smallest.count);
  const bool small = size <= sizes_.small_request.count;
  const BlockId id = take_free(size, small);
  const std::int64_t left = at(id).size - size;
  if (small ? left >= sizes_.smallest.count : left > sizes_.small_request.count) split(id, size);
  at(id).used = true;
  allocated_ += Bytes{at(id).size};
  peak_allocated_ = std::max(peak_allocated_, allocated_);
  return id;
}

void CachingAllocator::join(BlockId first, BlockId second) {
  at(first).size += at(second).size;
  at(first).after = at(second).after;
  if (at(second).after.valid()) at(at(second).after).before = first;
  retired_.push_back(second);
}

void CachingAllocator::free(BlockId id) {
  KERF_CHECK(at(id).used, "a block is freed once");
  at(id).used = false;
  allocated_ -= Bytes{at(id).size};
  const BlockId after = at(id).after;
  if (after.valid() && !at(after).used) {
    pool(at(after)).erase(entry(after));
    join(id, after);
  }
  const BlockId before = at(id).before;
  if (before.valid() && !at(before).used) {
    pool(at(before)).erase(entry(before));
    join(before, id);
    id = before;
  }
  pool(at(id)).insert(entry(id));
}

void CachingAllocator::empty_cache() {
  for (Pool& pool : pools_) {
    std::erase_if(pool, [&](const Free& free) {
      const Block& block = at(free.block);
      if (block.before.valid() || block.after.valid()) return false;
      reserved_ -= Bytes{block.size};
      retired_.push_back(free.block);
      return true;
    });
  }
}

void CachingAllocator::reset_peaks() {
  peak_allocated_ = allocated_;
  peak_reserved_ = reserved_;
}

}  // namespace kerf
