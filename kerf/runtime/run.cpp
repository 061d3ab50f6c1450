// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/run.h"

#include <algorithm>
#include <chrono>

namespace kerf {
namespace {

template <class Item>
std::size_t place_of(const std::vector<Item>& sorted, const Item& item) {
  return static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), item) -
                                  sorted.begin());
}

}  // namespace

Run::Run(Turn& turn, const std::vector<Program>& programs, std::size_t num_devices,
         std::size_t num_workers, Schedule schedule, TaskTable tasks, BackendRun& backend_run,
         bool record)
    : turn_(turn),
      programs_(programs),
      schedule_(std::move(schedule)),
      tasks_(std::move(tasks)),
      backend_run_(backend_run),
      record_(record),
      events_(num_devices),
      working_(num_workers) {
  std::size_t num_values = 0;
  for (const Program& program : programs) {
    if (program.makes_loss && tasks_.shape().training()) loss_ = &program;
    for (const Send& send : program.sends) {
      num_values = std::max(num_values, send.value.index() + 1);
    }
  }
  for (const std::vector<Task>& of_device : schedule_) {
    std::vector<std::size_t> num_received(tasks_.size(), 0);
    for (const Task& task : of_device) {
      num_received[tasks_.id(task).index()] =
          kerf::num_received(programs[task.stage.index()], task.phase);
    }
    channels_.push_back(std::make_unique<Channel>(num_received));
  }
  results_.assign(static_cast<std::size_t>(tasks_.n_microbatches()),
                  std::vector<ParcelPtr>(num_values));
  backend_run_.make_room(tasks_.size());
}

void Run::send(const Program& program, const Task& task, std::vector<ParcelPtr> parcels) {
  if (task.phase == Phase::forward) send_values(program, task.microbatch, parcels);
  if (task.phase == Phase::backward) send_gradients(program, task.microbatch, parcels);
}

void Run::deliver(StageId stage, Phase phase, int microbatch, std::size_t place,
                  const ParcelPtr& parcel) {
  channel(programs_[stage.index()].device)
      .deliver(tasks_.id({stage, microbatch, phase}), place, parcel);
}

void Run::send_gradients(const Program& program, int microbatch,
                         const std::vector<ParcelPtr>& parcels) {
  for (std::size_t i = 0; i < program.gradients_out.size(); ++i) {
    const auto [value, to] = program.gradients_out[i];
    deliver(to, Phase::backward, microbatch,
            place_of(programs_[to.index()].gradients_in, Exchange{value, program.stage}),
            parcels[i]);
  }
}

// Results of other stages come after the gradients.
void Run::send_result(const Program& program, ValueId value, int microbatch,
                      const ParcelPtr& parcel) {
  if (loss_ == nullptr || loss_ == &program) return;
  deliver(loss_->stage, Phase::backward, microbatch,
          loss_->gradients_in.size() + place_of(loss_->results_in, Exchange{value, program.stage}),
          parcel);
}

void Run::send_values(const Program& program, int microbatch,
                      const std::vector<ParcelPtr>& parcels) {
  for (std::size_t i = 0; i < program.sends.size(); ++i) {
    const Send& send = program.sends[i];
    // Each (micro-batch, value) has one producer: no two threads write one place.
    if (send.to_caller) {
      results_[static_cast<std::size_t>(microbatch)][send.value.index()] = parcels[i];
      send_result(program, send.value, microbatch, parcels[i]);
    }
    for (const StageId to : send.to) {
      deliver(to, Phase::forward, microbatch, place_of(programs_[to.index()].received, send.value),
              parcels[i]);
    }
  }
  for (std::size_t i = 0; i < program.order_before.size(); ++i) {
    const StageId to = program.order_before[i];
    const Program& receiver = programs_[to.index()];
    deliver(to, Phase::forward, microbatch,
            receiver.received.size() + place_of(receiver.order_after, program.stage),
            parcels[program.sends.size() + i]);
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

// Notified with the lock held: whoever waits may destroy the run as soon as it is free.
void Run::leave() {
  const std::lock_guard lock(done_mutex_);
  --working_;
  if (working_ == 0) done_.notify_all();
}

bool Run::wait_for(double seconds) {
  std::unique_lock lock(done_mutex_);
  return done_.wait_for(lock, std::chrono::duration<double>(seconds),
                        [&] { return working_ == 0; });
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
