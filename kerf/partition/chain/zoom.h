// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Splits of graphs too large to look at every interval. Private to partition/chain/.
#pragma once

#include <functional>

#include "kerf/partition/chain/in_order.h"

namespace kerf::partition {

// More nodes than this are not looked at one by one.
inline constexpr std::size_t kMostChainNodes = 20'000;

using ChainSolver = std::function<Outcome<Plan, Infeasible>(const ChainInput&)>;

// Solves for some positions only, good ones and evenly spread, then again for positions around the
// cuts that were found, ever closer, down to single nodes. Near the best, not proved to be it: the
// plan is marked `truncated`, an Infeasible says that it is not proved.
Outcome<Plan, Infeasible> zoom_in(ChainInput input, const ChainSolver& solve);

}  // namespace kerf::partition
