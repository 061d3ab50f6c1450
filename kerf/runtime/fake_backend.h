// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kerf/plan/passes.h"
#include "kerf/plan/plan.h"
#include "kerf/runtime/backend.h"

namespace kerf {

// Executes nothing, in virtual time: each device has a clock that the plan's stage times and links
// move forward. What it records must equal what the simulator predicts, whatever the real threads
// do. It can be told to fail or to do something else in a stage, to test that workers stop, wait
// and can be used again.
class FakeBackend : public Backend {
 public:
  // `on_caller`: a single device is left to the caller's thread.
  explicit FakeBackend(const Plan& plan, bool on_caller = false);

  // The next runs throw Error(run_failed) in this stage and micro-batch; an invalid stage: no more.
  void fail_at(StageId stage, int microbatch, Phase phase = Phase::forward) {
    fail_task_ = {stage, microbatch, phase};
  }

  // Every task of the stage calls `block`: what an opaque block would do.
  void call_at(StageId stage, std::function<void(const Task&)> block) {
    blocks_[stage] = std::move(block);
  }

  std::unique_ptr<StageRunner> load(const Program& program) override;
  bool runs_on_caller(DeviceId) const override { return on_caller_; }
  void start_worker(DeviceId) override {}
  void enter(BackendRun& run, DeviceId device) override;
  void leave(BackendRun&, DeviceId) override {}

 private:
  friend class FakeRunner;
  const Cut* find_cut(ValueId value) const;
  Nanoseconds time_of(StageId stage, Phase phase) const;

  Plan plan_;
  Passes passes_;
  Task fail_task_;
  bool on_caller_ = false;
  std::map<StageId, std::function<void(const Task&)>> blocks_;
};

// The clocks of one run, each moved by its own worker only.
class FakeRun : public BackendRun {
 public:
  explicit FakeRun(std::size_t num_devices) : devices(num_devices) {}
  struct DeviceState {
    Nanoseconds clock;
    // (micro-batch, tensor and, for a gradient, who sent it) that crossed already
    std::set<std::pair<int, Exchange>> fetched;
  };
  std::vector<DeviceState> devices;
};

}  // namespace kerf
