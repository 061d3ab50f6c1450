// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/allocator_watch.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <unordered_map>

namespace kerf {

// Those that the step allocated. It has no thread but one.
class AllocatorWatch::HostBlocks : public MemoryListener {
 public:
  void allocated(const void* block, Bytes bytes, c10::Device where) override {
    if (!where.is_cpu()) return;
    blocks_[block] = bytes;
    live_ += bytes;
    most_ = std::max(most_, live_);
  }
  void freed(const void* block) override {
    const auto found = blocks_.find(block);
    if (found == blocks_.end()) return;  // of an earlier step
    live_ -= found->second;
    blocks_.erase(found);
  }
  void restart() {
    blocks_.clear();
    live_ = most_ = {};
  }
  Bytes given_back() const { return most_ - live_; }

 private:
  std::unordered_map<const void*, Bytes> blocks_;  // looked up only
  Bytes live_;
  Bytes most_;
};

AllocatorWatch::AllocatorWatch(std::size_t num_steps, c10::Device device)
    : StepClock(num_steps), device_(device) {
  if (!device.is_cpu() || !MemoryListener::has_room()) return;
  host_ = std::make_shared<HostBlocks>();
  listening_.emplace(host_);
}

Bytes AllocatorWatch::given_back() const {
  if (device_.is_cpu()) return host_ ? host_->given_back() : Bytes{};
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto bytes =
      at::getDeviceAllocator(device_.type())->getDeviceStats(device_.index()).allocated_bytes[kAll];
  return {bytes.peak - bytes.current};
}

void AllocatorWatch::close() {
  if (current_ == kNone) return;
  // A node with several functions of backward: the largest.
  ns_[current_] = std::max(ns_[current_], static_cast<double>(given_back().count));
  current_ = kNone;
}

void AllocatorWatch::step(std::size_t step) {
  close();
  if (host_) host_->restart();
  if (!device_.is_cpu()) at::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
  current_ = step;
}

void AllocatorWatch::stop() { close(); }

}  // namespace kerf
