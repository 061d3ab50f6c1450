// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/partition/training/recompute_search.h"

namespace kerf::partition {

// For a training problem that nothing fits: what would, found by planning again, each time with a
// sixteenth of the budget: with everything computed again, another schedule, more micro-batches (of
// twice as many, four times as many, ... that the graph's conditions allow the fewest that do), all
// of these, and an optimizer without state. When none does, how much is missing at best.
Infeasible advise(const Problem& problem, const Options& options, const Solve& solve,
                  Infeasible reason);

}  // namespace kerf::partition
