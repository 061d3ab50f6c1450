// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Contiguous plans along one topological order: good first answers, and a polish of others.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/partition/ideals/stage.h"

namespace kerf::partition::ideals {

using Order = std::vector<std::uint32_t>;

using Stages = std::vector<std::uint32_t>;  // by group
Stages stages_of(const Chain& chain);

// As numbered; depth first in two ways; what keeps the cost of crossing nets low; `num_random`
// others. Where stages are given, one comes after the other.
std::vector<Order> good_orders(const Groups& groups, const Stages& stages, int num_random,
                               Rng& rng);

// Steps taken, and whether to take more.
struct Effort {
  std::int64_t work = 0;
  std::function<bool()> stop;
};

// A plan in this order, each device filled as far as a limit lets it, the limit bisected. Loads
// stay below `above_all`; an infinite one: none found. O(n) a limit.
Chain fill_order(const Groups& groups, const Order& order, double above_all, Effort& effort);

// The best plan with stages that follow each other in this order and a largest load below `limit`,
// if there is one (else, or when stopped, its load is infinite). O(n * stage * devices).
Chain cut_order(const Groups& groups, const Order& order, double limit, Effort& effort);

}  // namespace kerf::partition::ideals
