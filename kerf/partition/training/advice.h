// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/partition/training/recompute_search.h"

namespace kerf::partition {

// For a training problem that nothing fits: what would, found by planning again with everything
// computed again, another schedule, more micro-batches, an optimizer without state, and all of the
// first three. Says for each whether it fits; when none does, how much is missing at best.
Infeasible advise(const Problem& problem, const Options& options, const Solve& solve,
                  Infeasible reason);

}  // namespace kerf::partition
