// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Memory of the pretend accelerator: host memory that is counted, limited and watched.
//
// It behaves as memory under PyTorch's caching allocator does: freed at once for the stream that
// allocated it, so that another stream still reading it reads rubbish (NaN), unless the tensor was
// given to that stream by record_stream.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/pretend_device/streams.h"

namespace pretend {

// One use of a range of a block by a stream's task.
struct Access {
  std::size_t begin = 0, end = 0;  // bytes from the block's start
  std::size_t stream = 0;
  std::uint64_t task = 0;
  bool write = false;
  std::string what;
  bool told = false;  // one race is told of: a forgotten wait is found by all that comes later
};

// Device memory, or pinned host memory. Tasks that use it hold it: what is freed too early is read
// as rubbish, and never as another process's trouble.
struct Block {
  Block(std::size_t bytes, c10::DeviceIndex device);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::byte* data;
  const std::size_t bytes;
  const c10::DeviceIndex device;     // -1: pinned
  Stream* allocated_on = nullptr;    // null when pinned
  std::vector<Stream*> recorded_on;  // guarded by issue_mutex(), as all below
  std::vector<Access> accesses;
};

// The block that holds the address; null for other memory.
std::shared_ptr<Block> find_block(const void* address);
void record_stream(const c10::DataPtr& pointer, Stream& stream);

struct Usage {
  std::size_t allocated = 0, peak = 0, num_allocations = 0, num_ooms = 0;
  std::optional<std::size_t> limit;
};
Usage usage_of(c10::DeviceIndex device);
void reset_peak(c10::DeviceIndex device);
void set_limit(c10::DeviceIndex device, std::optional<std::size_t> bytes);
std::size_t pinned_bytes();

c10::Allocator& device_allocator();  // allocates on the current device
c10::Allocator& pinned_allocator();
c10::DataPtr allocate_on(c10::DeviceIndex device, std::size_t bytes);

}  // namespace pretend
