// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// 1F1B (PipeDream-Flush; Narayanan et al., 2021): a device runs a backward as soon as it can, and
// starts no more micro-batches than there are stages from its own to the end:
//
//   stage 0 on device 0   F0 F1 F2       B0    F3 B1    F4 ...
//   stage 1 on device 1      F0 F1    B0    F2 B1    F3 ...
//   stage 2 on device 2         F0 B0    F1 B1    F2 ...
//
// As long as fill_drain, with less memory. A stage's limit never blocks for good: of the
// micro-batches that wait anywhere the earliest is below every limit.
#include "kerf/plan/schedule/greedy.h"

namespace kerf {

Schedule one_forward_one_backward(const ScheduleRequest& request) {
  if (!request.shape.training()) return fill_drain(request);
  return take_turns(request, stages_to_the_end(request.shape), [](const Choice& choice) {
    return choice.of(Phase::backward) ? choice.of(Phase::backward) : choice.of(Phase::forward);
  });
}

}  // namespace kerf
