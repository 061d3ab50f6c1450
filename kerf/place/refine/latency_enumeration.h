// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The split with the least latency among all there are, for problems of few units.
#pragma once

#include "kerf/base/stop_clock.h"
#include "kerf/place/load_search.h"
#include "kerf/place/lower_load.h"
#include "kerf/place/refine/latency_timer.h"

namespace kerf::place {

// How many splits try_all_splits looks at, memory aside: accelerators are equal, so that a unit
// opens the next free one and no other.
double count_splits(const Instance& units);

// `timer` is of the problem that was lowered. `optimal` unless the clock struck; stops
// early at `good_enough`. `device` is empty when no split fits.
LoadAnswer try_all_splits(const LoweredLoad& lowered, LatencyTimer& timer, double good_enough,
                          const StopClock& clock);

}  // namespace kerf::place
