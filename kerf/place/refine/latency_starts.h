// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Splits for latency_search to start from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/lower_load.h"

namespace kerf::place {

// Units by the mean place of their nodes in an order of nodes.
std::vector<UnitId> order_of_units(const LoweredLoad& lowered,
                                   std::span<const std::uint32_t> node_order);

// All on the CPU; the order, and one grown from its far end, cut for least total time; the order
// cut for least max load; memories filled. Some may not fit the memory.
std::vector<Split> latency_starts(const Instance& units, std::span<const UnitId> order,
                                  const StopClock& clock, Rng& rng);

}  // namespace kerf::place
