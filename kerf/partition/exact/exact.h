// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/partition/partition.h"

namespace kerf::partition {

// The optimum over all ways to give every node a device such that the devices, each with one stage,
// do not wait for each other in a cycle; contiguous splits in any order of devices are among them.
// Branch and bound with exponential worst case: for graphs of up to about twenty pieces, as the
// reference in tests. Options::work_limit (default 20 million branches) marks the plan `truncated`.
Outcome<Plan, Infeasible> exact(const Problem& problem, const Options& options);

}  // namespace kerf::partition
