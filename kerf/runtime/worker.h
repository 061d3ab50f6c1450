// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "kerf/runtime/backend.h"
#include "kerf/runtime/run.h"

namespace kerf {

// Runs a device's part of a run on the calling thread: its tasks in schedule order, each when its
// parcels are there. Failures go to `run`, and so does what poll_interrupt() throws in between;
// nothing is thrown.
void run_device(Run& run, DeviceId device, Backend& backend, std::span<const Program> programs,
                std::span<const std::unique_ptr<StageRunner>> runners);

// A thread that belongs to one device for as long as the executor lives.
class Worker {
 public:
  // Throws what Backend::start_worker throws. The spans must outlive the worker.
  Worker(DeviceId device, Backend& backend, std::span<const Program> programs,
         std::span<const std::unique_ptr<StageRunner>> runners);
  ~Worker();  // joins
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Works on it after all that was started before, then leaves it (Run::leave). Returns at once.
  void start(Run& run);

 private:
  void loop(std::exception_ptr* failure);
  void work(Run& run);

  DeviceId device_;
  Backend& backend_;
  std::span<const Program> programs_;
  std::span<const std::unique_ptr<StageRunner>> runners_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Run*> runs_;  // work to do, in this order
  bool ready_ = false;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace kerf
