// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Zero bubble (Qi et al., 2023; torch's InterleavedZeroBubble, ZB1P): other stages wait for the
// gradients of tensors alone (B), so those of weights (W) can fill the gaps:
//
//   stage 0 on device 0   F0 F1 F2       B0 W0 F3 B1 W1 ...
//   stage 1 on device 1      F0 F1    B0 F2 W0 B1 F3 ...
//   stage 2 on device 2         F0 B0 F1 B1 F2 W0 ...
//
// A device keeps as many micro-batches of each stage as there are devices. When it has as many, it
// makes gradients of weights to free one; after that a forward comes before a backward, since the
// devices behind have nothing else to do.
#include "kerf/plan/schedule/greedy.h"

namespace kerf {

Schedule zero_bubble(const ScheduleRequest& request) {
  if (!request.shape.training()) return fill_drain(request);
  std::vector<int> stages(static_cast<std::size_t>(request.num_devices), 0);
  for (const DeviceId device : request.stage_devices) ++stages[device.index()];
  const int devices = count_used(request);
  return take_turns(request, {}, [&](const Choice& choice) -> std::optional<Task> {
    const bool full = choice.live >= stages[choice.device] * devices;
    const std::optional<Task>& forward = choice.of(Phase::forward);
    if (full && choice.forwards_left && choice.of(Phase::weight_gradient)) {
      return choice.of(Phase::weight_gradient);
    }
    if (forward && !full && choice.last != Phase::forward) return forward;
    if (choice.of(Phase::backward)) return choice.of(Phase::backward);
    if (forward && !full) return forward;
    return choice.of(Phase::weight_gradient);
  });
}

}  // namespace kerf
