// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kerf/place/load_problem.h"
#include "kerf/place/lower_bound.h"

namespace kerf::place {

// Every lower bound on the max load of any split.
std::vector<LowerBound> load_bounds(const LoadProblem& problem);
// No split has a smaller latency: the longest path, each node where it is fastest.
LowerBound latency_bound(const LoadProblem& problem);

}  // namespace kerf::place
