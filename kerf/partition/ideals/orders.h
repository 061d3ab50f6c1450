// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Contiguous plans along one topological order: good first answers, and a polish of others.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/partition/ideals/stage.h"

namespace kerf::partition::ideals {

using Order = std::vector<std::uint32_t>;

// As numbered; depth first in two ways; what keeps the fewest bytes crossing; `num_random` others.
std::vector<Order> good_orders(const Groups& groups, int num_random, Rng& rng);

// The best plan with stages that follow each other in this order and a largest load below `limit`,
// if there is one (else its load is infinite). O(n * stage * devices). Adds its steps to `work`.
Chain cut_order(const Groups& groups, const Order& order, double limit, std::int64_t& work);

}  // namespace kerf::partition::ideals
