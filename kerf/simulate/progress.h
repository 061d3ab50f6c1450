// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What a schedule's order guarantees, however long each action takes: vector clocks (Fidge 1988,
// Mattern 1989) over the actions. Private to simulate/.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kerf/plan/schedule/schedule.h"

namespace kerf {

// Time and space: actions x devices, and each action's dependencies.
class Progress {
 public:
  // after[s]: stages that stage s waits for. Throws Error(invalid_plan) when the schedule
  // deadlocks.
  Progress(const Schedule& schedule, std::span<const std::vector<StageId>> after);

  // The index of the first action of `device` that cannot start before `stage` has run
  // `microbatch`; when there is none, one past the last if the stage is on the device itself and
  // two past it otherwise.
  std::size_t first_after(DeviceId device, StageId stage, int microbatch) const;

 private:
  struct Place {
    std::size_t device = 0;
    std::size_t index = 0;
  };

  bool advance(const Schedule& schedule, std::span<const std::vector<StageId>> after,
               std::size_t device);

  // done_[d][i][e]: actions of device e that have surely ended when action i of device d starts;
  // grows with i.
  std::vector<std::vector<std::vector<std::size_t>>> done_;
  std::vector<std::size_t> num_actions_;    // by device
  std::vector<std::vector<Place>> places_;  // by stage and micro-batch
  std::vector<std::vector<bool>> placed_;
};

}  // namespace kerf
