// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/partition/partition.h"

namespace kerf::partition {

// The best split of the graph's own order into one interval for each device, devices in the order
// given, some of them possibly left out.
//
// Minimises the busiest device; among the splits that reach the minimum, the sum of all devices'
// loads, hence the time one micro-batch takes to pass through. Exact: no contiguous split is better
// and Infeasible means that none fits. Memory figures in the search are those of the engine.
// Exception: when the links into a device differ, or devices share a memory, the dynamic program
// works with bounds and a search over splits follows, exact too unless it meets Options::work_limit
// (default 2 million interval evaluations; then the plan is marked `truncated`); it does not go on
// to the second criterion.
//
// At most O(nodes x edges + nodes^2 x devices); intervals that the bounds rule out are never
// visited, which leaves about 1 / devices of them.
Outcome<Plan, Infeasible> chain(const Problem& problem, const Options& options);

}  // namespace kerf::partition
