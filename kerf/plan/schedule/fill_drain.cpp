// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// GPipe (Huang et al., 2019). At clock c stage s runs micro-batch c - s; backwards follow in the
// same way from the last stage to the first:
//
//   stage 0 on device 0   F0 F1 F2                B0 B1 B2
//   stage 1 on device 1      F0 F1 F2          B0 B1 B2
//   stage 2 on device 2         F0 F1 F2    B0 B1 B2
//
// A device with several stages takes what is due by clock, then by stage. No placement can
// deadlock: (clock, stage) orders all tasks of all devices, and every dependency goes up in it.
#include <algorithm>

#include "kerf/plan/schedule/schedule.h"

namespace kerf {
namespace {

// Calls visit(step, microbatch) clock by clock: the step of number s is due s clocks after the
// first.
template <class Visit>
void for_each_diagonal(int num_steps, int n_microbatches, Visit&& visit) {
  for (int clock = 0; clock < num_steps + n_microbatches - 1; ++clock) {
    const int first = std::max(0, clock - n_microbatches + 1);
    for (int step = first; step <= std::min(clock, num_steps - 1); ++step) {
      visit(step, clock - step);
    }
  }
}

}  // namespace

Schedule fill_drain(const ScheduleRequest& request) {
  check_amount(request.stage_devices.size() * request.shape.num_phases(), request.n_microbatches);
  Schedule schedule(static_cast<std::size_t>(request.num_devices));
  const int num_stages = static_cast<int>(request.stage_devices.size());
  const auto add = [&](int stage, int microbatch, Phase phase) {
    if (!request.shape.has(StageId{stage}, phase)) return;
    const DeviceId device = request.stage_devices[static_cast<std::size_t>(stage)];
    schedule[device.index()].push_back({StageId{stage}, microbatch, phase});
  };
  for_each_diagonal(num_stages, request.n_microbatches,
                    [&](int stage, int microbatch) { add(stage, microbatch, Phase::forward); });
  if (!request.shape.training()) return schedule;
  for_each_diagonal(num_stages, request.n_microbatches, [&](int step, int microbatch) {
    add(num_stages - 1 - step, microbatch, Phase::backward);
    add(num_stages - 1 - step, microbatch, Phase::weight_gradient);
  });
  return schedule;
}

}  // namespace kerf
