// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Schedules by doing: a clock runs, forwards and the two halves of a backward take a tick each, and
// a device that is free takes one of its tasks that can start, by the generator's own rule. The
// order in which tasks were taken is the schedule, so it cannot deadlock. Private to
// plan/schedule/.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "kerf/plan/schedule/schedule.h"

namespace kerf {

// A device that is free, and the first task of each phase that it could start now, in the order
// in which its stages take turns: group by group of micro-batches, stage by stage in a group;
// backwards from the last stage to the first.
struct Choice {
  std::size_t device = 0;
  std::optional<Task> ready[3];  // by phase; forwards only of stages below their limits
  bool forwards_left = false;    // some forward of the device has not started
  int live = 0;                  // forwards that it ran and whose last backward phase it did not
  std::optional<Phase> last;     // what it did before

  const std::optional<Task>& of(Phase phase) const {
    return ready[static_cast<std::size_t>(phase)];
  }
};

// nullopt: rather nothing now.
using Rule = std::function<std::optional<Task>(const Choice&)>;

// limits[s]: most micro-batches of stage s that may be live for a further one to start; empty: as
// many as you like. Where nothing could ever start under the rule and the limits, the first forward
// that can start does: both are wishes.
//
// Complexity: tasks x stages.
Schedule take_turns(const ScheduleRequest& request, const std::vector<int>& limits,
                    const Rule& rule);

// By stage: how many stages wait for it one after the other, itself included.
std::vector<int> stages_to_the_end(const StepShape& shape);
// Devices that have a stage.
int count_used(const ScheduleRequest& request);

}  // namespace kerf
