// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// A topological order drawn with `seed`. With `order_edges` false only data edges are honoured:
// legal-looking, and wrong wherever memory is written in place.
std::vector<NodeId> random_order(const Graph& graph, std::uint64_t seed, bool order_edges = true);

// The same graph with its nodes in `order`, a permutation in which values are made before they are
// used. Throws Error(invalid_graph) otherwise. Reads and writes are those of the new order.
Graph reorder(const Graph& graph, std::span<const NodeId> order);

}  // namespace kerf
