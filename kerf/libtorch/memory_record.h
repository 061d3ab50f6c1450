// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Bytes in use on each device through one call of a pipeline, as PyTorch's allocators report them.
//
//   auto record = MemoryRecord::start(devices, run.start);      // null: a profiler has the hook
//   { const MemoryRecord::Scope scope(record, device); ... }    // on each thread that works
//   timeline.memory = record->curves();
//
// memory_listener.h says how it hears of them, and of what it does not. A call that is not recorded
// costs nothing.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kerf/libtorch/memory_listener.h"
#include "kerf/plan/timeline.h"

namespace kerf {

class MemoryRecord {
 public:
  using Clock = std::chrono::steady_clock;

  // `devices` by DeviceId. Null when a profiler listens on the calling thread: it keeps its
  // reports.
  static std::shared_ptr<MemoryRecord> start(std::vector<c10::Device> devices,
                                             Clock::time_point start);
  MemoryRecord(std::vector<c10::Device> devices, Clock::time_point start);

  // While it lives, what the calling thread allocates on the host is `device`'s; on an accelerator
  // it belongs to that accelerator. Without a record: does nothing.
  class Scope {
   public:
    Scope(const std::shared_ptr<MemoryRecord>& record, DeviceId device);

   private:
    std::optional<MemoryListener::Scope> listening_;
  };

  // All functions: from any thread.
  // What is there before the call, and stays. Before anything else is told.
  void add(DeviceId device, MemoryKind kind, Bytes bytes);
  // From now on a block of the call is of this kind. Others are not known, and stay so.
  void recount(const void* block, MemoryKind kind);
  // Of the devices with something to tell.
  std::vector<MemoryCurve> curves() const;

 private:
  class Listener;
  struct Block {
    DeviceId device;
    MemoryKind kind;
    Bytes bytes;
  };
  using Blocks = std::unordered_map<const void*, Block>;  // looked up only

  void allocated(const void* block, DeviceId device, Bytes bytes);
  void freed(const void* block);
  DeviceId owner(DeviceId of_thread, c10::Device where) const;
  // With the mutex held.
  MemoryPoint& next_point(DeviceId device);  // now, with what is there
  void forget(Blocks::iterator block);

  const std::vector<c10::Device> devices_;
  const Clock::time_point start_;
  mutable std::mutex mutex_;
  Blocks blocks_;
  std::vector<std::vector<MemoryPoint>> points_;  // by device
};

}  // namespace kerf
