// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/stream/pinned_arena.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "kerf/libtorch/stream/stream_slots.h"
#include "kerf/libtorch/stream/write_watch.h"

namespace kerf {
namespace {

// The blocks of weights that are alive: a watched tensor's deleter is told the address alone.
struct Blocks {
  std::mutex mutex;
  std::unordered_map<const void*, at::Tensor> by_weight;
};
Blocks& blocks() {
  static auto* const all = new Blocks;  // weights may live longer than the program's statics
  return *all;
}

void free_weight(void* address) {
  at::Tensor block;  // freed after the lock
  const std::lock_guard lock(blocks().mutex);
  const auto found = blocks().by_weight.find(address);
  block = std::move(found->second);
  blocks().by_weight.erase(found);
}

}  // namespace

at::Tensor pinned_bytes(std::size_t bytes) {
  return at::empty({static_cast<std::int64_t>(bytes)},
                   at::TensorOptions(at::kByte).pinned_memory(true));
}

void PinnedArena::take_block(std::size_t bytes) {
  const std::size_t smallest = std::bit_ceil(bytes);
  while (true) {
    // The last blocks are ever smaller ones: what is left of them is small, too.
    const std::size_t wanted = std::min(std::bit_floor(bytes_left_), largest_block_);
    const std::size_t size = std::max(wanted, smallest);
    try {
      block_ = pinned_bytes(size);
      return;
    } catch (const c10::Error&) {  // there is no more of it, or no accelerator that has any
      largest_block_ = size / 2;
      if (size > smallest) continue;
      block_ = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
      not_pinned_ += bytes;
      return;
    }
  }
}

std::byte* PinnedArena::place(std::size_t bytes) {
  if (!block_.defined() || used_ + bytes > block_.nbytes()) {
    take_block(bytes);
    used_ = 0;
  }
  std::byte* const begin = static_cast<std::byte*>(block_.mutable_data_ptr()) + used_;
  used_ += bytes;
  bytes_left_ -= std::min(bytes_left_, bytes);
  return begin;
}

std::vector<at::Tensor> PinnedArena::take(const std::vector<HostWeight>& weights) {
  std::vector<at::Tensor> out;
  for (const HostWeight& weight : weights) {
    const std::size_t bytes = weight.nbytes();
    if (bytes == 0) {
      out.push_back(weight.load(at::kCPU));
      continue;
    }
    std::byte* const begin = place(slot_aligned(bytes));
    const HostWeight plain = weight.in_order();
    plain.read(0, plain.size(), begin);
    {
      const std::lock_guard lock(blocks().mutex);
      blocks().by_weight.emplace(begin, block_);
    }
    out.push_back(make_watched(begin, &free_weight, at::dtype(weight.type()), weight.sizes(),
                               plain.strides()));
  }
  return out;
}

bool PinnedArena::in_one_block(const void* a, const void* b) {
  const std::lock_guard lock(blocks().mutex);
  const auto first = blocks().by_weight.find(a);
  const auto second = blocks().by_weight.find(b);
  return first != blocks().by_weight.end() && second != blocks().by_weight.end() &&
         first->second.is_same(second->second);
}

}  // namespace kerf
