// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/executor.h"

#include <fmt/format.h>

#include <set>

#include "kerf/base/error.h"
#include "kerf/base/interrupt.h"

namespace kerf {

Executor::Executor(const Graph& graph, const Plan& plan, Backend& backend)
    : plan_(plan), backend_(backend), programs_(compile_programs(graph, plan_)) {
  std::set<DeviceId> used;
  for (const Program& program : programs_) {
    poll_interrupt();
    runners_.push_back(backend.load(program));
    used.insert(program.device);
  }
  used_.assign(used.begin(), used.end());
  after_.resize(programs_.size());
  for (const Program& program : programs_) {
    for (const Send& send : program.sends) {
      for (const StageId to : send.to) {
        std::vector<StageId>& before = after_[to.index()];
        if (before.empty() || before.back() != program.stage) before.push_back(program.stage);
      }
    }
  }
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
  if (n_microbatches < 1) {
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("[runtime.run] {} micro-batches; expected at least 1; give another number",
                    n_microbatches));
  }
  const std::size_t num_devices = plan_.cluster.num_devices();
  Schedule schedule = schedule_maker(plan_.schedule)(plan_.stage_devices(),
                                                     static_cast<int>(num_devices), n_microbatches);
  Run run(turn, programs_, num_devices, std::move(schedule), TaskTable(after_, n_microbatches),
          backend_run, record);
  for (const auto& worker : workers_) worker->start(run);
  wait_for_workers(run);
  if (workers_.empty()) {
    for (const DeviceId device : used_) run_device(run, device, backend_, programs_, runners_);
  }
  run.rethrow_failure();
  return {run.results(), run.take_events()};
}

void Executor::wait_for_workers(Run& run) {
  for (const auto& worker : workers_) {
    while (!worker->wait_for(kPollSeconds)) {
      try {
        poll_interrupt();
      } catch (...) {
        run.fail(std::current_exception());
      }
    }
  }
}

}  // namespace kerf
