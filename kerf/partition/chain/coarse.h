// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A few good places to cut. Private to partition/chain/.
#pragma once

#include <vector>

#include "kerf/partition/chain/intervals.h"

namespace kerf::partition {

// About `count` of the cuttable positions: the graph's work in equal shares, of each the position
// that the fewest bytes cross. A split at these is found fast and is rarely far from the best.
std::vector<bool> coarse_positions(const Intervals& intervals, const std::vector<bool>& cuttable,
                                   std::size_t count);

}  // namespace kerf::partition
