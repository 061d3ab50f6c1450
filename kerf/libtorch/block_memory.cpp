// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/block_memory.h"

#include <algorithm>

namespace kerf {

void BlockMemory::allocated(const void* block, Bytes bytes, c10::Device where) {
  if (where != device_) return;
  const std::lock_guard lock(mutex_);
  blocks_[block] = bytes;
  live_ += bytes;
  most_ = std::max(most_, live_);
}

void BlockMemory::freed(const void* block) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) return;  // from before
  live_ -= found->second;
  blocks_.erase(found);
}

Bytes BlockMemory::take_peak() {
  const std::lock_guard lock(mutex_);
  const Bytes most = most_;
  most_ = live_;
  return most;
}

}  // namespace kerf
