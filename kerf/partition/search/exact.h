// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/partition/method.h"

namespace kerf::partition {

// The optimum over all ways to give every unit a device, several stages on a device where need be,
// as far as the budget goes. `throughput`: branch and bound by minimum cuts (mincut/prove.h), for
// hundreds of units where links are alike and memory is ample; what that leaves open, and every
// other objective, by enumeration (search/enumerate.h), for up to about twenty units; the stages of
// a split are formed as place_units does, so that `latency`, `step` and `memory` are the best of
// these and not proved the best of all.
// Options::time_budget is for all of it, Options::work_limit for the branches of the enumeration
// (default 20 million). A plan that is not proved the best has a gap to its bound or is marked
// `truncated`.
Outcome<Plan, Infeasible> exact(const Problem& problem, const Options& options);

}  // namespace kerf::partition
