// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/executor.h"

#include <fmt/format.h>

#include <set>

#include "kerf/base/error.h"
#include "kerf/base/interrupt.h"
#include "kerf/base/sort_unique.h"

namespace kerf {
namespace {

// By stage: those that make a value it uses, or must have run for another reason.
std::vector<std::vector<StageId>> find_waits(const std::vector<Program>& programs) {
  std::vector<std::vector<StageId>> after(programs.size());
  for (const Program& program : programs) {
    for (const Send& send : program.sends) {
      for (const StageId to : send.to) {
        std::vector<StageId>& before = after[to.index()];
        if (before.empty() || before.back() != program.stage) before.push_back(program.stage);
      }
    }
    for (const StageId to : program.order_before) after[to.index()].push_back(program.stage);
  }
  return after;
}

// As planned, and the backward of a stage whose result goes into the loss waits for the loss.
StepShape training_shape(const Plan& plan, const std::vector<Program>& programs) {
  StepShape shape = step_shape(plan);
  for (const Program& program : programs) {
    shape.backward[program.stage.index()] = program.has_backward;
    std::vector<StageId>& after = shape.after[program.stage.index()];
    for (const Exchange& result : program.results_in) after.push_back(result.stage);
    sort_unique(after);
  }
  return shape;
}

}  // namespace

Executor::Executor(const Graph& graph, const Plan& plan, Backend& backend)
    : plan_(plan), backend_(backend), programs_(compile_programs(graph, plan_)) {
  std::set<DeviceId> used;
  for (const Program& program : programs_) {
    poll_interrupt();
    runners_.push_back(backend.load(program));
    used.insert(program.device);
  }
  used_.assign(used.begin(), used.end());
  inference_.after = find_waits(programs_);
  if (plan.training) training_ = training_shape(plan_, programs_);
  if (used_.size() == 1 && backend.runs_on_caller(used_.front())) return;
  for (const DeviceId device : used_) {
    workers_.push_back(std::make_unique<Worker>(device, backend_, programs_, runners_));
  }
}

Executor::Result Executor::run(BackendRun& backend_run, int n_microbatches, bool record) {
  Turn turn(turns_);
  return run(turn, backend_run, n_microbatches, record);
}

Executor::Result Executor::run(Turn& turn, BackendRun& backend_run, int n_microbatches,
                               bool record) {
  return finish(*start(turn, backend_run, n_microbatches, record));
}

std::unique_ptr<Run> Executor::start(Turn& turn, BackendRun& backend_run, int n_microbatches,
                                     bool record) {
  return start_shape(inference_, turn, backend_run, n_microbatches, record);
}

Executor::Result Executor::train(Turn& turn, BackendRun& backend_run, int n_microbatches,
                                 bool record) {
  if (!plan_.training) {
    throw Error(ErrorKind::invalid_plan,
                "[runtime.train] the plan is one of inference; expected a plan of training; plan "
                "with training=True");
  }
  return finish(*start_shape(training_, turn, backend_run, n_microbatches, record));
}

std::unique_ptr<Run> Executor::start_shape(const StepShape& shape, Turn& turn,
                                           BackendRun& backend_run, int n_microbatches,
                                           bool record) {
  if (n_microbatches < 1) {
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("[runtime.run] {} micro-batches; expected at least 1; give another number",
                    n_microbatches));
  }
  const std::size_t num_devices = plan_.cluster.num_devices();
  Schedule schedule =
      schedule_kind(plan_.schedule)
          .make({plan_.stage_devices(), static_cast<int>(num_devices), n_microbatches, shape});
  auto run =
      std::make_unique<Run>(turn, programs_, num_devices, workers_.size(), std::move(schedule),
                            TaskTable(shape, n_microbatches), backend_run, record);
  for (const auto& worker : workers_) worker->start(*run);
  return run;
}

Executor::Result Executor::finish(Run& run) {
  wait_for_workers(run);
  if (workers_.empty()) {
    for (const DeviceId device : used_) run_device(run, device, backend_, programs_, runners_);
  }
  run.rethrow_failure();
  return {run.results(), run.take_events()};
}

void Executor::stop(Run& run) {
  run.fail(std::make_exception_ptr(Interrupted()));
  wait_for_workers(run);
}

void Executor::wait_for_workers(Run& run) {
  while (!run.wait_for(kPollSeconds)) {
    try {
      poll_interrupt();
    } catch (...) {
      run.fail(std::current_exception());
    }
  }
}

}  // namespace kerf
