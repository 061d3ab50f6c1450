// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kerf/libtorch/memory_listener.h"
#include "kerf/libtorch/step_clock.h"

namespace kerf {

// What steps take from the device's allocator and give back before they end: workspaces. As a clock
// of bytes. On an accelerator inputs must stay alive during a step, so that only what is transient
// is given back; on the host blocks are told apart, and it has to be used by one thread.
class AllocatorWatch : public StepClock {
 public:
  AllocatorWatch(std::size_t num_steps, c10::Device device);
  // False on the host while a profiler listens to its allocator: all steps take nothing.
  bool works() const { return !device_.is_cpu() || host_ != nullptr; }
  void start() override { current_ = kNone; }
  void step(std::size_t step) override;
  void stop() override;
  // Ends the step early; what comes until the next one is nobody's.
  void close();

 private:
  class HostBlocks;
  Bytes given_back() const;

  c10::Device device_;
  std::shared_ptr<HostBlocks> host_;
  std::optional<MemoryListener::Scope> listening_;
  std::size_t current_ = kNone;
  static constexpr auto kNone = static_cast<std::size_t>(-1);
};

}  // namespace kerf
