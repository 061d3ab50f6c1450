// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/task_order.h"

#include <algorithm>
#include <limits>
#include <string>

#include "kerf/base/error.h"

namespace kerf::derive {
namespace {

constexpr auto kNowhere = std::numeric_limits<std::size_t>::max();

[[noreturn]] void refuse_order(const std::string& fault) {
  throw Error(ErrorKind::invalid_plan, "[verify.schedule] the schedule " + fault);
}

}  // namespace

TaskOrder::TaskOrder(std::span<const DeviceId> stage_devices, std::size_t num_devices,
                     std::size_t n_microbatches)
    : n_microbatches_(n_microbatches),
      by_device_(num_devices),
      position_(stage_devices.size() * n_microbatches) {
  for_each_task(stage_devices.size(), n_microbatches, [&](const Task& task) {
    std::vector<Task>& own = by_device_[stage_devices[task.stage].index()];
    position_[index(task)] = own.size();
    own.push_back(task);
    all_.push_back(task);
  });
}

TaskOrder::TaskOrder(std::vector<std::vector<Task>> by_device, std::size_t num_tasks,
                     std::span<const std::vector<StageId>> after, std::size_t n_microbatches)
    : n_microbatches_(n_microbatches),
      by_device_(std::move(by_device)),
      position_(after.size() * n_microbatches, kNowhere) {
  std::vector<std::size_t> at(by_device_.size(), 0);
  const auto can_run = [&](const Task& task) {
    const std::vector<StageId>& before = after[task.stage];
    return std::all_of(before.begin(), before.end(), [&](StageId stage) {
      return position_[index({stage.index(), task.microbatch})] != kNowhere;
    });
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t d = 0; d < by_device_.size(); ++d) {
      while (at[d] < by_device_[d].size() && can_run(by_device_[d][at[d]])) {
        const Task& task = by_device_[d][at[d]];
        if (position_[index(task)] != kNowhere) refuse_order("has a task twice");
        position_[index(task)] = at[d]++;
        all_.push_back(task);
        moved = true;
      }
    }
  }
  for (std::size_t d = 0; d < by_device_.size(); ++d) {
    if (at[d] < by_device_[d].size()) refuse_order("waits forever");
  }
  if (all_.size() != num_tasks) refuse_order("leaves tasks out");
}

}  // namespace kerf::derive
