// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// How long a step takes and how much of it devices stand idle, task by task from the definitions
// (docs/concepts.md: step, bubble; simulate/simulate.h has the rules of transfers). The planners'
// engine skips what repeats itself; here every micro-batch is walked. Private to verify/.
#pragma once

#include "kerf/verify/task_order.h"
#include "kerf/verify/traffic.h"

namespace kerf::derive {

struct StepFigures {
  double end = 0;  // ns
  double bubble = 0;
  double moments = 0;  // that were added up, one after the other: sums lose digits
};

// Stages must be numbered topologically; their times are the plan's. Throws
// Error(invalid_argument) for a step of more tasks and transfers than can be walked.
//
// Complexity: tasks and transfers, times a logarithm where transfers share a wire.
StepFigures derive_step(const Flow& flow, const Traffic& traffic, const Plan& plan,
                        int n_microbatches);
// With tasks in another order than fill_drain's: of `plan`'s stages only devices and times count.
StepFigures derive_step(const Flow& flow, const Traffic& traffic, const Plan& plan,
                        const TaskOrder& order);

}  // namespace kerf::derive
