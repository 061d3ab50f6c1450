// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/plan/plan.h"
#include "kerf/plan/timeline.h"
#include "kerf/runtime/backend.h"
#include "kerf/runtime/run.h"
#include "kerf/runtime/turn.h"
#include "kerf/runtime/worker.h"

namespace kerf {

// Runs a plan in this process: one worker thread for each device in use, or none when the backend
// lets the caller's thread do it.
//
//   Executor executor(graph, plan, backend);
//   auto result = executor.run(backend_run, /*n_microbatches=*/4);
//   result.parcels[0][value.index()];
//
// Calls from several threads are served one after the other; a call from inside a call of the same
// executor is refused. While a caller waits it polls (base/interrupt.h): what its poll throws ends
// the run, after the kernels that have begun. After a failure the executor can be used again.
class Executor {
 public:
  struct Result {
    std::vector<std::vector<ParcelPtr>> parcels;  // by micro-batch, then by value
    std::vector<Event> events;                    // when recorded
  };

  // `backend` must outlive the executor.
  Executor(const Graph& graph, const Plan& plan, Backend& backend);

  Result run(BackendRun& backend_run, int n_microbatches, bool record = false);
  // The same for a caller that has taken its turn at `turns()` already, on this thread.
  Result run(Turn& turn, BackendRun& backend_run, int n_microbatches, bool record = false);
  // The two halves of `run`, for callers that have several calls under way, each with a BackendRun
  // of its own: a stage works on them in the order in which they were started, and the next may be
  // in its first stage while one is in its last. `turn` and `backend_run` must outlive the call.
  std::unique_ptr<Run> start(Turn& turn, BackendRun& backend_run, int n_microbatches,
                             bool record = false);
  Result finish(Run& run);  // works itself where runs_on_caller()
  // Ends it as soon as the kernels that have begun are done; what it made is lost.
  void stop(Run& run);
  // A training step of a plan made for training, forward and backward; results are given, too.
  Result train(Turn& turn, BackendRun& backend_run, int n_microbatches, bool record = false);

  // Is all work done on the thread that calls, on that thread's streams?
  bool runs_on_caller() const { return workers_.empty(); }

  Turns& turns() { return turns_; }
  const std::vector<Program>& programs() const { return programs_; }
  const Plan& plan() const { return plan_; }

 private:
  std::unique_ptr<Run> start_shape(const StepShape& shape, Turn& turn, BackendRun& backend_run,
                                   int n_microbatches, bool record);
  void wait_for_workers(Run& run);

  Plan plan_;
  Backend& backend_;
  std::vector<Program> programs_;
  std::vector<std::unique_ptr<StageRunner>> runners_;  // by stage
  StepShape inference_;
  StepShape training_;                            // no stages: the plan is of inference
  std::vector<DeviceId> used_;                    // devices that have a stage, ascending
  std::vector<std::unique_ptr<Worker>> workers_;  // of used_; empty: the caller works
  Turns turns_;
};

}  // namespace kerf
