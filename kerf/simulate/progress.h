// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What a schedule's order guarantees, however long each task takes: vector clocks (Fidge 1988,
// Mattern 1989) over the tasks.
#pragma once

#include <cstddef>
#include <vector>

#include "kerf/plan/schedule/schedule.h"

namespace kerf {

// Time and space: tasks x devices, and what each task waits for.
class Progress {
 public:
  // `tasks` has every task of the schedule; it must outlive the call alone. Throws
  // Error(invalid_plan) when the schedule deadlocks.
  Progress(const Schedule& schedule, const TaskTable& tasks);

  // The index of the first task of `device` that cannot start before `task` has ended; when there
  // is none, one past the last if the task is on the device itself and two past it otherwise.
  std::size_t first_after(DeviceId device, TaskId task) const;
  // Of a task among those of its device.
  std::size_t index(TaskId task) const { return places_[task.index()].index; }

 private:
  struct Place {
    std::size_t device = 0;
    std::size_t index = 0;
  };

  bool advance(const Schedule& schedule, const TaskTable& tasks, std::size_t device);

  // done_[d][i][e]: tasks of device e that have surely ended when task i of device d starts; grows
  // with i.
  std::vector<std::vector<std::vector<std::size_t>>> done_;
  std::vector<std::size_t> num_tasks_;  // by device
  std::vector<Place> places_;           // by TaskId
  std::vector<bool> placed_;            // by TaskId
};

}  // namespace kerf
