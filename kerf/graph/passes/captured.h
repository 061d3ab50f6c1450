// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/graph/operator.h"

namespace kerf {

// The calls of a model as a tracer met them, before they are a graph: needless ones are among them,
// and ones that no graph could hold. So it is data, not a frozen Graph: the passes below change it
// in place, one after the other, and what is left is verified once.
struct Captured {
  GraphData data;
  Operators operators;               // by Node::op; blocks that run as Python have none
  std::vector<std::size_t> numbers;  // by node: which of the tracer's calls it was
};

// Leaves out the nodes that are not kept. Values keep their numbers; renumber_values() comes last.
void keep_nodes(Captured& captured, const std::vector<bool>& kept);

}  // namespace kerf
