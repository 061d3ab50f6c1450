// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Hears of every allocation and free of a thread, on the host and on accelerators.
//
// PyTorch's allocators report to what a thread has in the slot of the profiler, and to nobody where
// it is empty: threads without a listener pay nothing. Blocks must be known by their addresses. The
// host's allocator reports a free with the size that it noted for the address when somebody last
// listened, and that may have been another block; and the thread that frees a block need not be the
// one that allocated it. What is not seen: memory that libraries take by themselves (packed weights
// of oneDNN, buffers of MKL), and what the threads of a parallel loop allocate.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <memory>

#include "kerf/base/units.h"

namespace kerf {

// A profiler that is switched off but for memory: whoever asks what is in the slot finds one.
class MemoryListener : public torch::profiler::impl::ProfilerStateBase {
 public:
  MemoryListener();

  // Called on the threads that have the listener, several at once.
  virtual void allocated(const void* block, Bytes bytes, c10::Device where) = 0;
  virtual void freed(const void* block) = 0;

  // False where a profiler has the slot of the calling thread. It keeps it: its callbacks take what
  // is there for their own.
  static bool has_room();

  // The calling thread has the listener while this lives.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<MemoryListener> listener)
        : guard_(c10::DebugInfoKind::PROFILER_STATE, std::move(listener)) {}

   private:
    c10::DebugInfoGuard guard_;
  };

  torch::profiler::impl::ActiveProfilerType profilerType() override;
  void reportMemoryUsage(void* block, std::int64_t size, std::size_t total_allocated,
                         std::size_t total_reserved, c10::Device where) override;
};

}  // namespace kerf
