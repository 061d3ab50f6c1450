// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/graph/passes/coarsen.h"
#include "kerf/profile/profile.h"

namespace kerf {

// The blocks that are measured one by one: the finest of find_blocks (graph/passes/coarsen.h),
// those of one group of `graph.glued()` taken together. In an order in which they can run.
std::vector<Block> blocks_to_measure(const Graph& graph);

// What the shapes say of a block: weights, inputs and outputs, in bytes.
BlockCost block_sizes(const Graph& graph, std::span<const NodeId> nodes, std::int64_t batch);

// `profile.levels` from `profile.blocks`: a table for each depth of the model's tree, as
// find_blocks has it. Blocks that were measured as one are one row at every depth. Times add up;
// of peaks and samples a row has the largest and the least of its blocks'; sizes are its own.
void fill_levels(const Graph& graph, Profile& profile);

}  // namespace kerf
