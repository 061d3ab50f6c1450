// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Search for the split with the least latency of one sample (find_latency).
#pragma once

#include "kerf/partition/load/load_search.h"

namespace kerf::partition {

// From all on the CPU, greedy fills and best cuts of lines of units (for least total time, for
// least max load): units and runs of units move, annealed. `objective` is the latency, `device` by
// unit of to_units(problem). `serial` as in find_latency. Memory is hard; work, clock and threads
// as for refine(). When nothing that fits was found, `device` is empty and the objective infinite.
LoadAnswer latency_search(const LoadProblem& problem, const LoadOptions& options, bool serial);

}  // namespace kerf::partition
