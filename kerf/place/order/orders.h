// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Topological orders along which good plans are likely. The units must be numbered in one.
#pragma once

#include <cstdint>

#include "kerf/base/rng.h"
#include "kerf/base/step_clock.h"
#include "kerf/place/instance.h"
#include "kerf/place/order/front.h"

namespace kerf::place {

enum class OrderKind : std::uint8_t {
  depth_first,     // what became ready last goes first
  least_crossing,  // what keeps the cost of crossing nets low; once late, as depth first
  least_number,
  greatest_number,
  drawn,  // mostly depth first
};
inline constexpr int kNumNaturalOrders = 4;  // those that draw nothing

// Stages come one after the other. O(units + edges) with a logarithm, and for `least_crossing` the
// nets of 64 units at each step.
Order make_order(const Instance& instance, const Stages& stages, OrderKind kind, Rng& rng,
                 StepClock& clock);

}  // namespace kerf::place
