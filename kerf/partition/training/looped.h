// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Looped placements: several stages on each device, in turn (stage s on device s mod p), for
// schedules that fill the gaps of one stage with another.
#pragma once

#include "kerf/partition/method.h"

namespace kerf::partition {

// The contiguous split into p x stages_per_device stages, found by `chain` as if each stage had a
// device of its own: the stages are balanced one by one, so the devices are too. Fewer stages where
// the graph cannot be cut as often. Not optimal: the best looped placement need not have equal
// stages.
Outcome<Plan, Infeasible> looped_plan(const Problem& problem, const Options& options);

}  // namespace kerf::partition
