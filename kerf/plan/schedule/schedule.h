// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/plan/schedule/task.h"

namespace kerf {

// For each device its tasks in execution order. A worker runs them one after the other and waits,
// before each, for those that it depends on (TaskTable) to have ended.
using Schedule = std::vector<std::vector<Task>>;

// Pure: stage_devices[s] is the device of stage s; stages are numbered topologically.
using ScheduleMaker = Schedule (*)(std::span<const DeviceId> stage_devices, int num_devices,
                                   int n_microbatches);

// GPipe's forward half. At clock c stage s runs micro-batch c - s, so
//
//   stage 0 on device 0   0 1 2 3
//   stage 1 on device 1     0 1 2 3
//   stage 2 on device 2       0 1 2 3
//
// A device with several stages takes what is due by clock, then by stage. No placement can
// deadlock: (clock, stage) orders all tasks of all devices, and every dependency goes up in it.
Schedule fill_drain(std::span<const DeviceId> stage_devices, int num_devices, int n_microbatches);

// By name: "fill_drain", also "gpipe". nullptr when unknown.
ScheduleMaker find_schedule(std::string_view name);
// Throws Error(invalid_argument) that lists the names.
ScheduleMaker schedule_maker(std::string_view name);
std::vector<std::string> schedule_names();

}  // namespace kerf
