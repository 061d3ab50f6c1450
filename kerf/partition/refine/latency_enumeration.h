// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The split with the least latency among all there are, for problems of few units.
#pragma once

#include "kerf/partition/load/load_search.h"
#include "kerf/partition/refine/latency_timer.h"
#include "kerf/partition/refine/split_state.h"
#include "kerf/partition/stop_clock.h"

namespace kerf::partition {

// How many splits try_all_splits looks at, memory aside: accelerators are equal, so that a unit
// opens the next free one and no other.
double count_splits(const FlatUnits& units);

// `timer` is of the problem that `problem` comes from. `optimal` unless the clock struck; stops
// early at `good_enough`. `device` is empty when no split fits.
LoadAnswer try_all_splits(const UnitProblem& problem, const FlatUnits& units, LatencyTimer& timer,
                          double good_enough, const StopClock& clock);

}  // namespace kerf::partition
