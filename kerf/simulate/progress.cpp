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

Progress::Progress(const Schedule& schedule, std::span<const std::vector<StageId>> after)
    : done_(schedule.size()),
      num_actions_(schedule.size()),
      places_(after.size()),
      placed_(after.size()) {
  std::size_t total = 0;
  for (const std::vector<Action>& actions : schedule) total += actions.size();
  if (total * schedule.size() > kMostClocks) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[simulate.memory] {} actions on {} devices are too many to follow; "
                            "expected a product of at most {}; use fewer micro-batches",
                            total, schedule.size(), kMostClocks));
  }
  for (std::size_t d = 0; d < schedule.size(); ++d) {
    num_actions_[d] = schedule[d].size();
    for (const Action& action : schedule[d]) {
      const auto microbatch = static_cast<std::size_t>(action.microbatch);
      if (places_[action.stage.index()].size() <= microbatch) {
        places_[action.stage.index()].resize(microbatch + 1);
        placed_[action.stage.index()].resize(microbatch + 1);
      }
    }
  }
  // Devices take turns until none can go on.
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t d = 0; d < schedule.size(); ++d) {
      while (advance(schedule, after, d)) moved = true;
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

bool Progress::advance(const Schedule& schedule, std::span<const std::vector<StageId>> after,
                       std::size_t device) {
  const std::size_t index = done_[device].size();
  if (index == schedule[device].size()) return false;
  const Action& action = schedule[device][index];
  const auto microbatch = static_cast<std::size_t>(action.microbatch);
  for (const StageId before : after[action.stage.index()]) {
    if (microbatch >= placed_[before.index()].size() || !placed_[before.index()][microbatch]) {
      return false;
    }
  }
  std::vector<std::size_t> clock(schedule.size());
  if (index > 0) clock = done_[device][index - 1];
  clock[device] = index;
  for (const StageId before : after[action.stage.index()]) {
    const Place& place = places_[before.index()][microbatch];
    const std::vector<std::size_t>& seen = done_[place.device][place.index];
    for (std::size_t e = 0; e < clock.size(); ++e) clock[e] = std::max(clock[e], seen[e]);
    clock[place.device] = std::max(clock[place.device], place.index + 1);
  }
  done_[device].push_back(std::move(clock));
  places_[action.stage.index()][microbatch] = {device, index};
  placed_[action.stage.index()][microbatch] = true;
  return true;
}

std::size_t Progress::first_after(DeviceId device, StageId stage, int microbatch) const {
  const Place& place = places_[stage.index()][static_cast<std::size_t>(microbatch)];
  const auto& clocks = done_[device.index()];
  const auto found = std::partition_point(clocks.begin(), clocks.end(), [&](const auto& clock) {
    return clock[place.device] <= place.index;
  });
  if (found != clocks.end()) return static_cast<std::size_t>(found - clocks.begin());
  return num_actions_[device.index()] + (place.device == device.index() ? 0 : 1);
}

}  // namespace kerf
