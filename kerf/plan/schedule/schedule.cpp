// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/schedule/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kerf/base/error.h"

namespace kerf {
namespace {

struct Entry {
  std::string_view name;
  ScheduleMaker maker;
};

// The second name is torch's and the paper's (Huang et al., GPipe, 2019).
constexpr Entry kSchedules[] = {{"fill_drain", fill_drain}, {"gpipe", fill_drain}};

// Stages times micro-batches: a schedule lists them all.
constexpr std::size_t kMostTasks = std::size_t{1} << 22;

// A number of micro-batches may come from a file, and each of them costs memory in every stage.
void check_amount(std::size_t num_stages, int n_microbatches) {
  if (n_microbatches < 1) {
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("[plan.schedule] {} micro-batches; expected at least 1; give another number",
                    n_microbatches));
  }
  const std::size_t tasks = num_stages * static_cast<std::size_t>(n_microbatches);
  if (tasks <= kMostTasks) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[plan.schedule] {} micro-batches of {} stages are {} tasks; expected at "
                          "most {}; use fewer micro-batches",
                          n_microbatches, num_stages, tasks, kMostTasks));
}

}  // namespace

Schedule fill_drain(std::span<const DeviceId> stage_devices, int num_devices, int n_microbatches) {
  check_amount(stage_devices.size(), n_microbatches);
  Schedule schedule(static_cast<std::size_t>(num_devices));
  const int num_stages = static_cast<int>(stage_devices.size());
  for (int clock = 0; clock < num_stages + n_microbatches - 1; ++clock) {
    for (int stage = std::max(0, clock - n_microbatches + 1);
         stage <= std::min(clock, num_stages - 1); ++stage) {
      const DeviceId device = stage_devices[static_cast<std::size_t>(stage)];
      schedule[device.index()].push_back({StageId{stage}, clock - stage, Phase::forward});
    }
  }
  return schedule;
}

ScheduleMaker find_schedule(std::string_view name) {
  for (const Entry& entry : kSchedules) {
    if (entry.name == name) return entry.maker;
  }
  return nullptr;
}

ScheduleMaker schedule_maker(std::string_view name) {
  if (const ScheduleMaker maker = find_schedule(name)) return maker;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[plan.schedule] unknown schedule '{}'; expected one of {}", name,
                          fmt::join(schedule_names(), ", ")));
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kSchedules) names.emplace_back(entry.name);
  return names;
}

}  // namespace kerf
