// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "kerf/plan/schedule/task.h"
#include "kerf/runtime/backend.h"

namespace kerf {

// Where the parcels for one device arrive during one run: a box for each of its (stage,
// micro-batch) pairs with a place for each received value. Any thread delivers; only the device's
// worker takes.
class Channel {
 public:
  // `num_received[t]`: how many values task t receives; 0 for tasks of other devices.
  explicit Channel(const std::vector<std::size_t>& num_received);

  void deliver(TaskId task, std::size_t place, ParcelPtr parcel);
  // Waits until the box is full and empties it; nullopt when the run was stopped.
  std::optional<std::vector<ParcelPtr>> take(TaskId task);
  // The run failed: whoever waits or will wait is sent home.
  void stop();

 private:
  struct Box {
    std::vector<ParcelPtr> parcels;
    std::atomic<std::size_t> missing{0};
  };
  std::unique_ptr<Box[]> boxes_;  // by task
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::condition_variable arrived_;
};

}  // namespace kerf
