// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "kerf/base/units.h"
#include "kerf/libtorch/memory_listener.h"

namespace kerf {

// The most bytes that work has allocated at one time on a device, what it has given back left out.
//
//   auto memory = std::make_shared<BlockMemory>(device);
//   const MemoryListener::Scope listening(memory);
//   forward();   Bytes forward = memory->take_peak();
//   backward();  Bytes backward = memory->take_peak();   // with what forward has kept
//
// Threads that PyTorch's engine works on tell it too.
class BlockMemory : public MemoryListener {
 public:
  explicit BlockMemory(c10::Device device) : device_(device) {}

  void allocated(const void* block, Bytes bytes, c10::Device where) override;
  void freed(const void* block) override;
  // Since it was made, or last asked.
  Bytes take_peak();

 private:
  c10::Device device_;
  std::mutex mutex_;
  std::unordered_map<const void*, Bytes> blocks_;  // looked up only
  Bytes live_;
  Bytes most_;
};

}  // namespace kerf
