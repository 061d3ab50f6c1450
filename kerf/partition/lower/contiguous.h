// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Splits of the graph's own order into intervals.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf::partition {

// by position 0 .. num_nodes: may a stage end before node `position`? Not inside a glued group.
std::vector<bool> cut_positions(const Graph& graph);

// {0, 3, 3, 5} -> {0,1,2}, {}, {3,4}.
std::vector<std::vector<NodeId>> intervals(std::span<const std::size_t> cuts);

}  // namespace kerf::partition
