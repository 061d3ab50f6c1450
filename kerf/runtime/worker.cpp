// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/worker.h"

#include "kerf/base/interrupt.h"

namespace kerf {
namespace {

void run_tasks(Run& run, DeviceId device, std::span<const Program> programs,
               std::span<const std::unique_ptr<StageRunner>> runners) {
  for (const Task& task : run.tasks(device)) {
    poll_interrupt();
    const TaskId id = run.task_table().id(task);
    const auto received = run.channel(device).take(id);
    if (!received) return;
    const std::size_t s = task.stage.index();
    auto parcels = runners[s]->run(run.backend_run(), task, id, *received, run.events(device));
    run.send(programs[s], task, std::move(parcels));
  }
}

}  // namespace

void run_device(Run& run, DeviceId device, Backend& backend, std::span<const Program> programs,
                std::span<const std::unique_ptr<StageRunner>> runners) {
  try {
    backend.enter(run.backend_run(), device);
  } catch (...) {
    return run.fail(std::current_exception());
  }
  try {
    run_tasks(run, device, programs, runners);
  } catch (...) {
    run.fail(std::current_exception());
  }
  try {
    backend.leave(run.backend_run(), device);
  } catch (...) {
    run.fail(std::current_exception());
  }
}

Worker::Worker(DeviceId device, Backend& backend, std::span<const Program> programs,
               std::span<const std::unique_ptr<StageRunner>> runners)
    : device_(device), backend_(backend), programs_(programs), runners_(runners) {
  std::exception_ptr failure;
  thread_ = std::thread([this, &failure] { loop(&failure); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_; });
  if (failure) {
    lock.unlock();
    thread_.join();
    std::rethrow_exception(failure);
  }
}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Worker::start(Run& run) {
  {
    const std::lock_guard lock(mutex_);
    runs_.push_back(&run);
  }
  changed_.notify_all();
}

// What the worker executes asks now and then whether the run still goes on.
void Worker::work(Run& run) {
  const PollScope scope([&run] {
    if (run.stopped()) throw Interrupted();
  });
  const InsideTurn inside(run.turn());
  run_device(run, device_, backend_, programs_, runners_);
}

void Worker::loop(std::exception_ptr* failure) {
  bool started = true;
  try {
    backend_.start_worker(device_);
  } catch (...) {
    *failure = std::current_exception();
    started = false;
  }
  std::unique_lock lock(mutex_);
  ready_ = true;
  changed_.notify_all();
  while (started) {
    changed_.wait(lock, [&] { return !runs_.empty() || closing_; });
    if (runs_.empty()) return;
    Run& run = *runs_.front();
    runs_.pop_front();
    lock.unlock();
    work(run);
    run.leave();
    lock.lock();
  }
}

}  // namespace kerf
