// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/graph.h"

namespace kerf {

// The pairs of an argument and a result of a node that may lie in one memory.
struct SharingPair {
  ValueId argument;
  ValueId result;
  bool traced;  // as one memory
};
std::vector<SharingPair> sharing_pairs(const GraphData& data, NodeId node);

// Would it make a difference whether the results of `node` lie in the memory of its arguments or
// are copies of it?
//
//   %y = contiguous(%h); %w = add_(&%y, 1); %z = relu(%h)    yes: what relu reads depends on it
//   %y = contiguous(%h); %w = add_(&%y, 1); %z = relu(%w)    no: nobody looks at %h any more
//
// A difference is a write, after the node, to one side that is seen on the other: by a later node,
// or by whoever holds inputs, weights and results. Effects of nodes (Node::written, may_alias) must
// be known; the data need not be a frozen graph's. Linear.
bool sharing_is_seen(const GraphData& data, NodeId node);

// Nodes that copy or do not, as strides ask for (contiguous, reshape, opaque blocks), where that is
// seen. Ascending.
std::vector<NodeId> nodes_that_strides_decide(const GraphData& data);

// By value: one of `decided` whose strides may follow from the strides of the value; invalid: none.
std::vector<NodeId> reached_by_strides(const GraphData& data, const std::vector<NodeId>& decided);

}  // namespace kerf
