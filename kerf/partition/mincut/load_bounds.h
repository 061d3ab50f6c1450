// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Lower bounds on the max load of any split, contiguous or not, memory respected. Each is proved by
// its one-sentence argument; rounding is downwards, so none exceeds the optimum. An infinite bound
// says that no split fits the memory.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/partition/load/load_search.h"

namespace kerf::partition {

// Compute alone, spread without loss over k accelerators and the CPU. O(n log n).
LoadBound work_bound(const UnitProblem& problem);
// The largest unit on the device that suits it best. O(n).
LoadBound unit_bound(const UnitProblem& problem);
// Compute alone, units whole: the largest limit that a search refutes within `budget` steps.
LoadBound packing_bound(const UnitProblem& problem, std::int64_t budget = 100'000);
// What must go to the CPU because accelerator memory is short. O(n log n).
LoadBound memory_bound(const UnitProblem& problem);
// The device of one unit, whatever else it holds: one minimum cut for each unit.
LoadBound cut_bound(const UnitProblem& problem);
// Two units, together or apart: three minimum cuts for each pair of the `candidates` units whose
// own cuts are largest.
LoadBound pair_bound(const UnitProblem& problem, std::size_t candidates = 40);

// All of the above, in this order.
std::vector<LoadBound> find_load_bounds(const UnitProblem& problem);
// The largest; the first of equal ones. `bounds` must not be empty.
const LoadBound& tightest(const std::vector<LoadBound>& bounds);

}  // namespace kerf::partition
