// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Lines of units such that few tensors cross any point of them, whatever comes before what.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/instance.h"

namespace kerf::place {

// Grows from `first`: next comes the unit that leaves the cheapest set of open tensors behind, ties
// and near ties (`noise`, relative) by `rng`. Of a wide frontier only the latest units are looked
// at: O(units). Once the clock has struck, the rest follows as it comes.
Order grow_order(const Instance& units, UnitId first, double noise, const StopClock& clock,
                 Rng& rng);
// Units as the producers of tensors reach them, depth first; cycles are cut where they close.
Order reach_order(const Instance& units, Rng& rng);
// The unit found last by a breadth-first walk from `from`.
UnitId far_unit(const Instance& units, UnitId from);

}  // namespace kerf::place
