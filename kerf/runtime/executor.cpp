// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/executor.h"

#include <fmt/format.h>

#include <set>

#include "kerf/base/error.h"

namespace kerf {

Executor::Executor(const Graph& graph, const Plan& plan, Backend& backend)
    : plan_(plan), backend_(backend), programs_(compile_programs(graph, plan_)) {
  std::set<DeviceId> used;
  for (const Program& program : programs_) {
    runners_.push_back(backend.load(program));
    used.insert(program.device);
  }
  used_.assign(used.begin(), used.end());
  if (used_.size() == 1 && backend.runs_on_caller(used_.front())) return;
  for (const DeviceId device : used_) {
    workers_.push_back(std::make_unique<Worker>(device, backend_, programs_, runners_));
  }
}

Executor::Result Executor::run(BackendRun& backend_run, int n_microbatches, bool record) {
  if (n_microbatches < 1) {
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("[runtime.run] {} micro-batches; expected at least 1; give another number",
                    n_microbatches));
  }
  const std::lock_guard lock(one_run_at_a_time_);
  const std::size_t num_devices = plan_.cluster.num_devices();
  Schedule schedule = schedule_maker(plan_.schedule)(plan_.stage_devices(),
                                                     static_cast<int>(num_devices), n_microbatches);
  Run run(programs_, num_devices, std::move(schedule), backend_run, n_microbatches, record);
  for (const auto& worker : workers_) worker->start(run);
  for (const auto& worker : workers_) worker->wait();
  if (workers_.empty()) {
    for (const DeviceId device : used_) run_device(run, device, backend_, programs_, runners_);
  }
  run.rethrow_failure();
  return {run.results(), run.take_events()};
}

}  // namespace kerf
