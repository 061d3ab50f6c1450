// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the runtime asks of whoever executes operators. The runtime knows stages, micro-batches and
// who waits for whom; a backend knows tensors, streams and clocks. Tests use FakeBackend.
//
// Shared and immutable: Program, and what a backend compiles from it. Owned by one run: BackendRun,
// the parcels, the frames. Neither is ever written by two threads at once.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/plan/schedule/task.h"
#include "kerf/plan/timeline.h"
#include "kerf/runtime/program.h"

namespace kerf {

// One value of one micro-batch on its way from stage to stage: a backend's own tensor.
class Parcel {
 public:
  virtual ~Parcel() = default;
};
using ParcelPtr = std::shared_ptr<const Parcel>;

// What one call brings along: inputs, batch, seed, the caller's thread-local state; and the frames
// of its tasks.
class BackendRun {
 public:
  virtual ~BackendRun() = default;
  // Before any task starts: make room for what each task holds.
  virtual void make_room(std::size_t num_tasks) { static_cast<void>(num_tasks); }
};

// A loaded program. Used by the worker of its device only.
class StageRunner {
 public:
  virtual ~StageRunner() = default;
  // Runs a task of its stage, known as `id` to the run. A forward is given the program's received,
  // then a parcel for each of order_after, and answers with one for each of its sends, then of
  // order_before. A backward is given gradients_in, then results_in, some of them null, and answers
  // with gradients_out. Appends to `events` when it is not
  // null. Throws Error(run_failed) naming node, scope, source line and device.
  virtual std::vector<ParcelPtr> run(BackendRun& run, const Task& task, TaskId id,
                                     std::span<const ParcelPtr> received,
                                     std::vector<Event>* events) = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::unique_ptr<StageRunner> load(const Program& program) = 0;

  // May the caller's own thread do the work of `device`, the only one in use? Saves two thread
  // switches, and on an accelerator the caller's stream is used.
  virtual bool runs_on_caller(DeviceId device) const = 0;
  // Called once on a new worker thread: take the device's cores or stream.
  virtual void start_worker(DeviceId device) = 0;
  // Called on the worker around its part of each run: adopt and drop the caller's state. `leave` is
  // called whenever `enter` returned, after a failure too.
  virtual void enter(BackendRun& run, DeviceId device) = 0;
  virtual void leave(BackendRun& run, DeviceId device) = 0;
};

}  // namespace kerf
