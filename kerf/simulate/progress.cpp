// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/base/error.h"

namespace kerf {
namespace {

constexpr std::size_t kMostClocks = std::size_t{1} << 27;  // eight bytes each

}  // namespace

Progress::Progress(const Schedule& schedule, const TaskTable& tasks)
    : done_(schedule.size()),
      num_tasks_(schedule.size()),
      places_(tasks.size()),
      placed_(tasks.size()) {
  if (tasks.size() * schedule.size() > kMostClocks) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[simulate.memory] {} tasks on {} devices are too many to follow; "
                            "expected a product of at most {}; use fewer micro-batches",
                            tasks.size(), schedule.size(), kMostClocks));
  }
  for (std::size_t d = 0; d < schedule.size(); ++d) num_tasks_[d] = schedule[d].size();
  // Devices take turns until none can go on.
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t d = 0; d < schedule.size(); ++d) {
      while (advance(schedule, tasks, d)) moved = true;
    }
  }
  for (std::size_t d = 0; d < schedule.size(); ++d) {
    if (done_[d].size() != schedule[d].size()) {
      throw Error(ErrorKind::invalid_plan,
                  "[simulate.memory] the schedule deadlocks: stages wait for each other; expected "
                  "stages numbered topologically");
    }
  }
}

bool Progress::advance(const Schedule& schedule, const TaskTable& tasks, std::size_t device) {
  const std::size_t index = done_[device].size();
  if (index == schedule[device].size()) return false;
  const TaskId task = tasks.id(schedule[device][index]);
  bool ready = true;
  tasks.for_each_wait(task, [&](TaskId before) { ready = ready && placed_[before.index()]; });
  if (!ready) return false;
  std::vector<std::size_t> clock(schedule.size());
  if (index > 0) clock = done_[device][index - 1];
  clock[device] = index;
  tasks.for_each_wait(task, [&](TaskId before) {
    const Place& place = places_[before.index()];
    const std::vector<std::size_t>& seen = done_[place.device][place.index];
    for (std::size_t e = 0; e < clock.size(); ++e) clock[e] = std::max(clock[e], seen[e]);
    clock[place.device] = std::max(clock[place.device], place.index + 1);
  });
  done_[device].push_back(std::move(clock));
  places_[task.index()] = {device, index};
  placed_[task.index()] = true;
  return true;
}

std::size_t Progress::first_after(DeviceId device, TaskId task) const {
  const Place& place = places_[task.index()];
  const auto& clocks = done_[device.index()];
  const auto found = std::partition_point(clocks.begin(), clocks.end(), [&](const auto& clock) {
    return clock[place.device] <= place.index;
  });
  if (found != clocks.end()) return static_cast<std::size_t>(found - clocks.begin());
  return num_tasks_[device.index()] + (place.device == device.index() ? 0 : 1);
}

}  // namespace kerf
