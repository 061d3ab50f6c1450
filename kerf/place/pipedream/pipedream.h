// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// PipeDream's split (Narayanan et al., SOSP 2019), without replication.
#pragma once

#include "kerf/place/load_search.h"

namespace kerf::place {

// One run of a topological order for each device, in their order, so that the largest of every
// run's compute and of every border's tensors is least: PipeDream's objective, in which transfers
// hide behind compute. What crosses a border are all tensors with units on both sides of it, long
// skips too. Memory is a limit on the bytes of a run. Optimal for that objective and that order,
// O(n log(1 / precision)); how good the split is under the problem's own charging is another
// question. An answer without devices: no such split fits.
LoadAnswer pipedream(const Instance& instance, const LoadOptions& options);

}  // namespace kerf::place
