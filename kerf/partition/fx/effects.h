// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Nodes that change tensors in place. The splitter orders submodules by data alone, so a node that
// changes a memory and one that touches the same memory, with no path of data between them, have to
// share a partition: there the graph's order is kept.
#pragma once

#include <vector>

#include "kerf/partition/fx/request.h"

namespace kerf::partition::fx {

// Groups of two and more, ascending, closed: what lies between two of a group is in it.
std::vector<std::vector<OpIndex>> inseparable_ops(const OpGraph& graph);

// The request with each group as one op, and the way back. Bytes of a group are never less than
// those of its ops.
struct Contracted {
  Request request;
  std::vector<std::vector<OpIndex>> members;  // by node of the new graph, nodes of the old one
};
Contracted contract(const Request& request, const std::vector<std::vector<OpIndex>>& groups);
std::vector<Partition> expand(const Request& request, const Contracted& contracted,
                              std::span<const Partition> partitions);

}  // namespace kerf::partition::fx
