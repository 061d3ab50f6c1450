// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Topological orders along which good plans are likely.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/place/ideals/clock.h"
#include "kerf/place/ideals/stage.h"

namespace kerf::place::ideals {

using Order = std::vector<std::uint32_t>;

using Stages = std::vector<std::uint32_t>;  // by group
Stages stages_of(const Chain& chain);

// Kinds 0 .. 3: depth first; what keeps the cost of crossing nets low; the least number first; the
// greatest. All others draw: mostly depth first. Where stages are given, one comes after the other.
// When time is up the second goes on as the first.
inline constexpr int kNumNaturalOrders = 4;
Order make_order(const Groups& groups, const Stages& stages, int kind, Rng& rng, Clock& clock);

}  // namespace kerf::place::ideals
