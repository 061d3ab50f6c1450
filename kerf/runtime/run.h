// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "kerf/plan/schedule/schedule.h"
#include "kerf/runtime/channel.h"
#include "kerf/runtime/turn.h"

namespace kerf {

// The mutable half of one call: channels, results, the first failure. Lives for the call.
class Run {
 public:
  // `num_workers`: of the threads that will work on it, each for a device.
  Run(Turn& turn, const std::vector<Program>& programs, std::size_t num_devices,
      std::size_t num_workers, Schedule schedule, TaskTable tasks, BackendRun& backend_run,
      bool record);

  Turn& turn() { return turn_; }
  BackendRun& backend_run() { return backend_run_; }
  const std::vector<Task>& tasks(DeviceId device) const { return schedule_[device.index()]; }
  const TaskTable& task_table() const { return tasks_; }
  Channel& channel(DeviceId device) { return *channels_[device.index()]; }
  std::vector<Event>* events(DeviceId device) {
    return record_ ? &events_[device.index()] : nullptr;
  }

  // Hands what a task of the program made to the tasks and the caller that wait for it.
  void send(const Program& program, const Task& task, std::vector<ParcelPtr> parcels);

  // Keeps the first failure and stops every device.
  void fail(std::exception_ptr failure);
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }
  void rethrow_failure() const;  // to be called when all devices are done

  // A worker has done its part, and will not touch the run again.
  void leave();
  // Until all workers have, or so long: have they?
  bool wait_for(double seconds);

  // results()[microbatch][value]: invalid pointers for values that are no results.
  const std::vector<std::vector<ParcelPtr>>& results() const { return results_; }
  // Of all devices, sorted by start.
  std::vector<Event> take_events();

 private:
  void deliver(StageId stage, Phase phase, int microbatch, std::size_t place,
               const ParcelPtr& parcel);
  void send_values(const Program& program, int microbatch, const std::vector<ParcelPtr>& parcels);
  void send_gradients(const Program& program, int microbatch,
                      const std::vector<ParcelPtr>& parcels);
  void send_result(const Program& program, ValueId value, int microbatch, const ParcelPtr& parcel);

  Turn& turn_;
  const std::vector<Program>& programs_;
  const Program* loss_ = nullptr;  // training: the one that makes the loss
  Schedule schedule_;
  TaskTable tasks_;
  BackendRun& backend_run_;
  bool record_;
  std::vector<std::unique_ptr<Channel>> channels_;  // by device
  std::vector<std::vector<ParcelPtr>> results_;     // by micro-batch, then by value
  std::vector<std::vector<Event>> events_;          // by device: each written by its worker only
  std::atomic<bool> stopped_{false};
  mutable std::mutex failure_mutex_;
  std::exception_ptr failure_;
  std::mutex done_mutex_;
  std::condition_variable done_;
  std::size_t working_;  // workers that have not left
};

}  // namespace kerf
