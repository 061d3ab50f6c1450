// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/task_order.h"

namespace kerf::derive {

bool is_schedule(std::string_view name) { return name == "fill_drain" || name == "gpipe"; }

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

}  // namespace kerf::derive
