// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What a planner places: nodes that must share a stage, as one.
#pragma once

#include <cstddef>
#include <vector>

#include "kerf/plan/problem.h"

namespace kerf::partition {

// units[node] numbers them by first node. Glued groups are one each, all other nodes stand alone.
std::vector<std::size_t> indivisible_units(const Graph& graph);

struct Unit {
  std::vector<NodeId> nodes;        // ascending
  double time = 0;                  // ns on the profiled kind
  std::vector<ValueId> tensors;     // used here, made in other units; ascending
  std::vector<std::size_t> before;  // units it waits for, over data and order edges; ascending
  std::vector<StorageId> weights;   // distinct, ascending
};
std::vector<Unit> collect_units(const Problem& problem, const std::vector<std::size_t>& unit_of);

// Numbers by first node need not be a topological order once nodes are merged; this is one, by
// number where there is a choice.
std::vector<std::size_t> topological_order(const std::vector<Unit>& units);

}  // namespace kerf::partition
