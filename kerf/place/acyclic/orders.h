// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kerf/base/rng.h"
#include "kerf/place/acyclic/level.h"

namespace kerf::place::acyclic {

enum class OrderKind : std::uint8_t {
  natural,      // as numbered
  depth_first,  // what became ready last goes first
  least_cut,    // what adds least to the tensors that are open
  levels,       // by the longest path from the start; backwards: to the end, so as late as can be
  random,
};

// All vertices, each after its predecessors. `backwards`: grown from the end.
Numbers find_order(const Level& level, OrderKind kind, bool backwards, Rng& rng);

// First what half 0 holds with all that comes before it, last what half 1 holds with all that comes
// after it; each by the longest path from the start, `backwards`: to the end.
Numbers order_by_halves(const Level& level, std::span<const std::uint32_t> half, bool backwards);

}  // namespace kerf::place::acyclic
