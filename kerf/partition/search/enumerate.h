// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Every way to give each unit a device, pruned by what is surely too long: the reference of tests,
// and the last resort of `exact` where the minimum cuts do not know memory or links well enough.
#pragma once

#include <cstdint>

#include "kerf/partition/raise/place.h"

namespace kerf::partition {

struct EnumerateLimits {
  std::int64_t work = 20'000'000;  // branches; a plan that is made counts for some hundred
  double seconds = 1e6;            // a safety stop
};

// So few units that it may end; no budget lets one of more end.
bool is_enumerable(const SplitModel& model);

// Improves `best` for the problem's objective; memory is the engine's. True: no split that fits is
// better than the best. Exponential: for up to about twenty units.
bool enumerate_splits(const Problem& problem, const SplitModel& model, BestPlan& best,
                      const EnumerateLimits& limits = {});

// The bound that a complete enumeration proves; `plan` is its best.
LowerBound tried_all(const Plan& plan);

}  // namespace kerf::partition
