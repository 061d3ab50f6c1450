// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "kerf/graph/node.h"

namespace kerf {

// The thread-local state of the thread that calls a pipeline: autocast, dispatch modes, profiler.
class CallerState {
 public:
  CallerState();  // of the calling thread, now
  ~CallerState();
  CallerState(const CallerState&) = delete;
  CallerState& operator=(const CallerState&) = delete;

  // Is it active on a worker?
  class Adoption {
   public:
    // Adopts `state` on the calling thread: no gradients are recorded and no inference tensors
    // made, whatever the caller had on; the rest is the caller's.
    explicit Adoption(const CallerState& state);
    ~Adoption();  // on the same thread
    Adoption(const Adoption&) = delete;
    Adoption& operator=(const Adoption&) = delete;

   private:
    struct Guards;
    std::unique_ptr<Guards> guards_;
  };

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sets autocast as a node was traced with it, and back. A region the model wrote for the traced
// device counts for the device the stage is on.
class AutocastScope {
 public:
  AutocastScope(const std::vector<Autocast>& states, c10::Device device);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  struct Saved;
  std::vector<Saved> saved_;
};

// Is autocast on for the calling thread, on the CPU or on `device`?
bool autocast_enabled(c10::Device device);
// Forgets weights that autocast has cast: they may change before the next run.
void clear_autocast_cache();

}  // namespace kerf
