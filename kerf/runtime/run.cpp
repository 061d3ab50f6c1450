// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/run.h"

#include <algorithm>

namespace kerf {

Run::Run(Turn& turn, const std::vector<Program>& programs, std::size_t num_devices,
         Schedule schedule, TaskTable tasks, BackendRun& backend_run, bool record)
    : turn_(turn),
      programs_(programs),
      schedule_(std::move(schedule)),
      tasks_(std::move(tasks)),
      backend_run_(backend_run),
      record_(record),
      events_(num_devices) {
  std::size_t num_values = 0;
  for (const Program& program : programs) {
    for (const Send& send : program.sends) {
      num_values = std::max(num_values, send.value.index() + 1);
    }
  }
  for (const std::vector<Task>& of_device : schedule_) {
    std::vector<std::size_t> num_received(tasks_.size(), 0);
    for (const Task& task : of_device) {
      num_received[tasks_.id(task).index()] = programs[task.stage.index()].received.size();
    }
    channels_.push_back(std::make_unique<Channel>(num_received));
  }
  results_.assign(static_cast<std::size_t>(tasks_.n_microbatches()),
                  std::vector<ParcelPtr>(num_values));
  backend_run_.make_room(tasks_.size());
}

void Run::send(const Program& program, const Task& task, std::vector<ParcelPtr> parcels) {
  for (std::size_t i = 0; i < program.sends.size(); ++i) {
    const Send& send = program.sends[i];
    // Each (micro-batch, value) has one producer: no two threads write one place.
    if (send.to_caller) {
      results_[static_cast<std::size_t>(task.microbatch)][send.value.index()] = parcels[i];
    }
    for (const StageId to : send.to) {
      const Program& receiver = programs_[to.index()];
      const auto place =
          std::lower_bound(receiver.received.begin(), receiver.received.end(), send.value);
      channel(receiver.device)
          .deliver(tasks_.id({to, task.microbatch, task.phase}),
                   static_cast<std::size_t>(place - receiver.received.begin()), parcels[i]);
    }
  }
}

void Run::fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  stopped_.store(true, std::memory_order_release);
  for (const auto& channel : channels_) channel->stop();
}

void Run::rethrow_failure() const {
  const std::lock_guard lock(failure_mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

std::vector<Event> Run::take_events() {
  std::vector<Event> out;
  for (auto& list : events_) {
    out.insert(out.end(), std::make_move_iterator(list.begin()),
               std::make_move_iterator(list.end()));
    list.clear();
  }
  std::stable_sort(out.begin(), out.end(), [](const Event& a, const Event& b) {
    return a.start != b.start ? a.start < b.start : a.device < b.device;
  });
  return out;
}

}  // namespace kerf
