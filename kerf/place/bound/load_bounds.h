// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Lower bounds on the max load of any split, contiguous or not, memory respected. Each is proved by
// its one-sentence argument; rounding is downwards, so none exceeds the optimum. An infinite bound
// says that no split fits the memory.
#pragma once

#include <vector>

#include "kerf/place/instance.h"
#include "kerf/place/lower_bound.h"

namespace kerf::place {

// Compute alone, spread without loss over all accelerators, each as fast as it is, and the CPU.
// O(n log n).
LowerBound work_bound(const Instance& problem);
// The largest unit on the device that suits it best, of those with the memory for it. O(n).
LowerBound unit_bound(const Instance& problem);
// Compute and memory alone, units whole: the largest limit that an exact search refutes in so many
// seconds of counted work, from `known` on; work_bound's where it refutes none. Small units of many
// are left out.
LowerBound packing_bound(const Instance& problem, const LowerBound& known, double seconds = 10);
// What must go to the CPU because accelerator memory is short. O(n log n).
LowerBound memory_bound(const Instance& problem);

// All of the above and those of cut_bounds.h: work, unit, packing, memory, cut, pair. The first two
// and the memory are always found; the others take what is left of `time_budget` (seconds), counted
// as work, the clock a safety stop. Deterministic unless the clock stops it. Costs of any size:
// they are scaled first (pack/cost_scale.h).
std::vector<LowerBound> find_load_bounds(const Instance& problem, double time_budget = 10);

}  // namespace kerf::place
