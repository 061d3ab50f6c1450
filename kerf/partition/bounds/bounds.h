// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What no plan can beat. Each bound is a value with the sentence that proves it; all hold for any
// placement, contiguous or not, and bound the busiest device (the objective `throughput`).
#pragma once

#include <vector>

#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"

namespace kerf::partition {

// work:     the devices together do all of it.
// unit:     nodes glued together run on one device.
// memory:   a device does no more than what fits into its memory.
// Linear but for sorting.
std::vector<LowerBound> lower_bounds(const Problem& problem);
// The largest of them; the first of equals.
LowerBound best_lower_bound(const Problem& problem);

}  // namespace kerf::partition
