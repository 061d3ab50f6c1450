// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Search for the split with the least latency of one sample (find_latency). It takes the
// LoadProblem beside its Instance: a latency is made of nodes. The nodes of a colour class, which
// an Instance has as one unit, run at different times, forward ones before backward ones, and
// classes would wait for each other in circles.
#pragma once

#include "kerf/place/load_problem.h"
#include "kerf/place/load_search.h"

namespace kerf::place {

// All splits when they are few for the time budget (`optimal` then). Else from all on the CPU,
// greedy fills and best cuts of lines of units (for least total time, for least max load): units
// and groups of units move, annealed, until the work that the time budget buys is used up.
// `objective` is the latency, `device` by unit of lower_load(problem). `serial` as in find_latency.
// Memory is hard; work, clock and threads as for refine(). When nothing that fits was found,
// `device` is empty and the objective infinite.
LoadAnswer latency_search(const LoadProblem& problem, const LoadOptions& options, bool serial);

}  // namespace kerf::place
