// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/memory_listener.h"

namespace kerf {

namespace profiler = torch::profiler::impl;

MemoryListener::MemoryListener()
    : ProfilerStateBase(profiler::ProfilerConfig(profiler::ProfilerState::Disabled,
                                                 /*report_input_shapes=*/false,
                                                 /*profile_memory=*/true)) {}

bool MemoryListener::has_room() {
  return c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) == nullptr;
}

profiler::ActiveProfilerType MemoryListener::profilerType() {
  return profiler::ActiveProfilerType::NONE;
}

void MemoryListener::reportMemoryUsage(void* block, std::int64_t size,
                                       std::size_t /*total_allocated*/,
                                       std::size_t /*total_reserved*/, c10::Device where) {
  if (size < 0) {
    freed(block);
  } else {
    allocated(block, {size}, where);
  }
}

}  // namespace kerf
