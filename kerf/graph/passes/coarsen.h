// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Modules in place of operators: which nodes are one block at a depth of the model's tree.
#pragma once

#include <string>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

inline constexpr int kAllDepths = -1;

// How far modules are opened. A module is one block when the depth is used up, when it is a basic
// block, or when it has no modules in it; otherwise its modules are looked at with one less, and
// its own operators are nodes by themselves. ModuleList and ModuleDict have no operators, and use
// up no depth.
//
//   depth 0     the whole model is one block
//   depth 1     the model's modules are blocks, and so are operators in the model's own forward
//   all depths  blocks are the modules without modules in them (Linear, LayerNorm), and operators
struct Coarseness {
  int depth = kAllDepths;
  std::vector<std::string> basic_blocks;  // class names and paths
};

struct Block {
  std::string path;           // of the module; of an operator's own module, for `is_operator`
  bool is_operator = false;   // opened: one node by itself
  std::vector<NodeId> nodes;  // ascending
};

// Every node in one block, in the order of first nodes. Two calls of a module are two blocks where
// something else runs between them. Throws Error(invalid_argument) for a basic block that the graph
// does not have, with the nearest name.
std::vector<Block> find_blocks(const Graph& graph, const Coarseness& coarseness);

// The same graph, with the nodes of each block glued: no plan cuts a block, whatever the method.
// Blocks that see each other's writes are one, and so are those that could not run one after the
// other. Files hold graphs without this glue; the hash is that of the graph without it.
Graph coarsen(const Graph& graph, const Coarseness& coarseness);

}  // namespace kerf
