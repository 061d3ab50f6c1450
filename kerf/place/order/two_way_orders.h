// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Topological orders that can be grown from either end. The units must be numbered in one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/place/instance.h"
#include "kerf/place/order/front.h"

namespace kerf::place {

enum class TwoWayOrder : std::uint8_t {
  natural,      // as numbered
  depth_first,  // what became ready last goes first
  least_cut,    // what adds least to the tensors that are open
  levels,       // by the longest path from the start; backwards: to the end, so as late as can be
  random,
};

// All units, each after its predecessors. `backwards`: grown from the end.
Order find_order(const Instance& instance, TwoWayOrder kind, bool backwards, Rng& rng);

// First what half 0 holds with all that comes before it, last what half 1 holds with all that comes
// after it; each by the longest path from the start, `backwards`: to the end.
Order order_by_halves(const Instance& instance, std::span<const SlotId> half, bool backwards);

}  // namespace kerf::place
