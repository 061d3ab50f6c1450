// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// What a group of nodes has in common with the rest of the graph.
struct Border {
  std::vector<ValueId> inputs;   // from outside, weights left out; in the order of first use
  std::vector<ValueId> weights;  // in the order of first use
  std::vector<ValueId> outputs;  // made here and used outside, or results of the model
};

// `nodes` ascending. Linear in them and their users.
Border find_border(const Graph& graph, std::span<const NodeId> nodes);

// The nodes as a graph of their own: inputs are the values that they take from outside, results
// those that somebody outside uses. Weights, scopes and names are those of the graph.
Graph subgraph(const Graph& graph, std::span<const NodeId> nodes);

// What a group of nodes does at one batch size, whatever things are called: two groups with one
// signature do the same work on tensors of the same shapes, strides, dtypes and need of gradients,
// with the same constants, and give the same of it away. 32 hex digits. Blocks that run as Python
// may do anything: one with such a node is like no other.
std::string signature(const Graph& graph, std::span<const NodeId> nodes, std::int64_t batch);

}  // namespace kerf
