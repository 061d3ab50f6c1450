// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pretend_device/memory.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "tests/support/pretend_device/races.h"

namespace pretend {
namespace {

// NaN in every floating-point type, and no index.
constexpr int kRubbish = 0xFF;

struct Memory {
  std::mutex mutex;
  std::map<const std::byte*, std::shared_ptr<Block>> blocks;  // by start
  std::array<Usage, kMaxDevices> usage;
  std::size_t pinned = 0;
};

Memory& memory() {
  static auto* it = new Memory;
  return *it;
}

void keep(const std::shared_ptr<Block>& block) {
  std::lock_guard lock(memory().mutex);
  memory().blocks.emplace(block->data, block);
}

std::shared_ptr<Block> take(const void* start) {
  std::lock_guard lock(memory().mutex);
  const auto found = memory().blocks.find(static_cast<const std::byte*>(start));
  if (found == memory().blocks.end()) return nullptr;
  auto block = std::move(found->second);
  memory().blocks.erase(found);
  return block;
}

Usage& usage_at(c10::DeviceIndex device) {
  TORCH_CHECK(device >= 0 && device < num_devices(), "pretend: there is no device ", int{device},
              "; there are ", int{num_devices()});
  return memory().usage[static_cast<std::size_t>(device)];
}

void count(c10::DeviceIndex device, std::size_t bytes) {
  std::lock_guard lock(memory().mutex);
  auto& usage = usage_at(device);
  if (usage.limit && usage.allocated + bytes > *usage.limit) {
    ++usage.num_ooms;
    TORCH_CHECK_WITH(OutOfMemoryError, false, "pretend out of memory. Tried to allocate ", bytes,
                     " bytes. Device ", int{device}, " has a limit of ", *usage.limit,
                     " bytes, of which ", usage.allocated, " are allocated.");
  }
  usage.allocated += bytes;
  usage.peak = std::max(usage.peak, usage.allocated);
  ++usage.num_allocations;
}

// To profilers, as accelerators' allocators do. `change` is negative where memory is freed.
void report(const Block& block, std::int64_t change) {
  std::size_t allocated = 0;
  {
    std::lock_guard lock(memory().mutex);
    allocated = usage_at(block.device).allocated;
  }
  c10::reportMemoryUsageToProfiler(block.data, change, allocated, allocated,
                                   c10::Device(c10::kPrivateUse1, block.device));
}

void free_device_block(void* start) {
  const auto block = take(start);
  if (!block) return;
  {
    std::lock_guard lock(memory().mutex);
    memory().usage[static_cast<std::size_t>(block->device)].allocated -= block->bytes;
  }
  report(*block, -static_cast<std::int64_t>(block->bytes));
  // The allocating stream may have the memory again at once: for the others that is a write.
  Stream& owner = *block->allocated_on;
  std::lock_guard lock(issue_mutex());
  issue(owner);
  Clock recorded;
  for (Stream* stream : block->recorded_on) join(recorded, stream->clock);
  note_access(*block, 0, block->bytes, true, owner, "freeing", &recorded);
  if (block->recorded_on.empty()) {
    owner.run_soon([block] { std::memset(block->data, kRubbish, block->bytes); });
  }
}

void free_pinned_block(void* start) {
  // As PyTorch's allocator of pinned memory does, copies under way keep it.
  const auto block = take(start);
  if (!block) return;
  std::lock_guard lock(memory().mutex);
  memory().pinned -= block->bytes;
}

struct DeviceAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(std::size_t bytes) override { return allocate_on(current_device(), bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &free_device_block; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& pointer, c10::Stream stream) override {
    record_stream(pointer, find_stream(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const auto usage = usage_of(device);
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes,
                        &stats.requested_bytes}) {
      (*bytes)[0].current = static_cast<std::int64_t>(usage.allocated);
      (*bytes)[0].peak = static_cast<std::int64_t>(usage.peak);
    }
    stats.num_ooms = static_cast<std::int64_t>(usage.num_ooms);
    stats.num_device_alloc = static_cast<std::int64_t>(usage.num_allocations);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex device) override { reset_peak(device); }
  // Not in every PyTorch from 2.11 on; without `override` it compiles in all.
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) {
    const auto usage = usage_of(device);
    const auto total = usage.limit.value_or(std::size_t{16} << 30);
    return {total - std::min(total, usage.allocated), total};
  }
};

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
    const auto block = std::make_shared<Block>(bytes, -1);
    keep(block);
    std::lock_guard lock(memory().mutex);
    memory().pinned += bytes;
    return {block->data, block->data, &free_pinned_block, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned_block; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

struct AllocatorAtLoad {
  AllocatorAtLoad() { c10::SetAllocator(c10::kPrivateUse1, &device_allocator()); }
} allocator_at_load;

}  // namespace

Block::Block(std::size_t bytes_, c10::DeviceIndex device_)
    : data(static_cast<std::byte*>(c10::alloc_cpu(bytes_))), bytes(bytes_), device(device_) {
  std::memset(data, kRubbish, bytes);
}

Block::~Block() { c10::free_cpu(data); }

std::shared_ptr<Block> find_block(const void* address) {
  if (address == nullptr) return nullptr;
  const auto* at = static_cast<const std::byte*>(address);
  std::lock_guard lock(memory().mutex);
  auto after = memory().blocks.upper_bound(at);
  if (after == memory().blocks.begin()) return nullptr;
  const auto& block = std::prev(after)->second;
  return at < block->data + block->bytes ? block : nullptr;
}

void record_stream(const c10::DataPtr& pointer, Stream& stream) {
  const auto block = find_block(pointer.get());
  if (!block || block->allocated_on == &stream) return;
  std::lock_guard lock(issue_mutex());
  auto& recorded = block->recorded_on;
  if (std::find(recorded.begin(), recorded.end(), &stream) == recorded.end()) {
    recorded.push_back(&stream);
  }
}

Usage usage_of(c10::DeviceIndex device) {
  std::lock_guard lock(memory().mutex);
  return usage_at(device);
}

void reset_peak(c10::DeviceIndex device) {
  std::lock_guard lock(memory().mutex);
  usage_at(device).peak = usage_at(device).allocated;
}

void set_limit(c10::DeviceIndex device, std::optional<std::size_t> bytes) {
  std::lock_guard lock(memory().mutex);
  usage_at(device).limit = bytes;
}

std::size_t pinned_bytes() {
  std::lock_guard lock(memory().mutex);
  return memory().pinned;
}

c10::DataPtr allocate_on(c10::DeviceIndex device, std::size_t bytes) {
  const c10::Device where(c10::kPrivateUse1, device);
  if (bytes == 0) return {nullptr, where};
  count(device, bytes);
  const auto block = std::make_shared<Block>(bytes, device);
  block->allocated_on = &current_stream(device);
  {
    // The memory may have been in use on this stream a moment ago: others must wait for it, as they
    // must under a caching allocator.
    std::lock_guard lock(issue_mutex());
    issue(*block->allocated_on);
    note_access(*block, 0, bytes, true, *block->allocated_on, "allocation");
  }
  keep(block);
  report(*block, static_cast<std::int64_t>(bytes));
  return {block->data, block->data, &free_device_block, where};
}

c10::Allocator& device_allocator() {
  static auto* it = new DeviceAllocator;
  return *it;
}

c10::Allocator& pinned_allocator() {
  static auto* it = new PinnedAllocator;
  return *it;
}

}  // namespace pretend
