// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The order of work that a schedule's definition gives (docs/concepts.md: schedule). Private to
// verify/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "kerf/base/id.h"

namespace kerf::derive {

// One stage run on one micro-batch; for training one pass (verify/unroll.h).
struct Task {
  std::size_t stage = 0;
  std::size_t microbatch = 0;
};

// fill_drain: at clock c stage s runs micro-batch c - s; what falls on one clock, by stage. In this
// order each task comes after all that it waits for, and each device runs its own.
template <class Visit>
void for_each_task(std::size_t num_stages, std::size_t n_microbatches, Visit&& visit) {
  if (num_stages == 0 || n_microbatches == 0) return;
  for (std::size_t clock = 0; clock < num_stages + n_microbatches - 1; ++clock) {
    const std::size_t first = clock < n_microbatches ? 0 : clock - n_microbatches + 1;
    for (std::size_t s = first; s <= std::min(clock, num_stages - 1); ++s) {
      visit(Task{s, clock - s});
    }
  }
}

// All tasks at once: tasks x 32 bytes.
class TaskOrder {
 public:
  TaskOrder(std::span<const DeviceId> stage_devices, std::size_t num_devices,
            std::size_t n_microbatches);
  // By device, as a schedule has them; `after` by stage. Throws Error(invalid_plan) unless each of
  // the tasks is there once and all can be run.
  TaskOrder(std::vector<std::vector<Task>> by_device, std::size_t num_tasks,
            std::span<const std::vector<StageId>> after, std::size_t n_microbatches);

  std::size_t n_microbatches() const { return n_microbatches_; }
  const std::vector<Task>& all() const { return all_; }
  const std::vector<Task>& of_device(std::size_t device) const { return by_device_[device]; }
  // 0 .. num_indices() - 1; passes that there are not leave theirs unused.
  std::size_t num_indices() const { return position_.size(); }
  std::size_t index(const Task& task) const {
    return task.stage * n_microbatches_ + task.microbatch;
  }
  // Its place among the tasks of its device.
  std::size_t position(const Task& task) const { return position_[index(task)]; }

 private:
  std::size_t n_microbatches_;
  std::vector<Task> all_;
  std::vector<std::vector<Task>> by_device_;
  std::vector<std::size_t> position_;  // by index
};

}  // namespace kerf::derive
