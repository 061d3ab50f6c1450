// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/graph.h"

namespace kerf {

// Tracers name weights and results independently, and inlined functions name theirs anew; a graph
// has one name space for values and one for nodes. The first keeps its name, others get a number:
// "add.1" for values, "add_i1" for nodes.
void make_value_names_unique(GraphData& data);
void make_node_names_unique(GraphData& data);

}  // namespace kerf
