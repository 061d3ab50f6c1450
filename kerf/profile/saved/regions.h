// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Regions that run again in backward instead of keeping what they made.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// Which region a node is in; nested ones count as the outermost.
using RegionNumber = std::int32_t;
inline constexpr RegionNumber kNoRegion = -1;

// By node, numbered from 0 in order of first node: where the model's code says so
// (torch.utils.checkpoint). What users name: plan/recompute.h.
std::vector<RegionNumber> traced_regions(const Graph& graph);

}  // namespace kerf
