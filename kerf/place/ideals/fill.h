// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// First plans along one topological order.
#pragma once

#include "kerf/base/rng.h"
#include "kerf/base/step_clock.h"
#include "kerf/place/ideals/stage.h"
#include "kerf/place/order/orders.h"

namespace kerf::place::ideals {

// No load of any plan reaches it.
double above_all_loads(const Groups& groups);

// Each device filled as far as a limit lets it, the limit bisected; unequal accelerators in several
// sequences. Loads stay below `below`; an infinite one: none found. O(n) a limit. Adds the steps
// it took to `work`. When time is up it answers with what it has, and looks once more if that is
// nothing.
Chain fill_order(const Groups& groups, const Order& order, double below, Rng& rng, StepClock& clock,
                 std::int64_t& work);

}  // namespace kerf::place::ideals
