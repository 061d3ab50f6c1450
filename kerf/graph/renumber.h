// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// Puts values in the order in which they are made: inputs, weights, results of nodes. Values that
// nobody makes are left out.
void renumber_values(GraphData& data);

// For passes that put one value in the place of another: maps have a row for every value.
std::vector<ValueId> identity_map(const GraphData& data);
void map_uses(Node& node, const std::vector<ValueId>& map);  // all but the node's own results
void map_outputs(GraphData& data, const std::vector<ValueId>& map);

}  // namespace kerf
