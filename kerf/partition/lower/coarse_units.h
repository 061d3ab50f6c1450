// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Coarsening by structure: what a model repeats is looked at once.
#pragma once

#include <cstddef>
#include <vector>

#include "kerf/partition/lower/repeats.h"
#include "kerf/plan/problem.h"

namespace kerf::partition {

// By node, equal for nodes that do the same to tensors of the same sizes.
std::vector<std::uint64_t> node_signatures(const Graph& graph);

// Runs of the graph's order, by node as indivisible_units numbers them; about `target`, none with
// more than its share of the time unless it cannot be cut. The blocks of a repeat are all cut at
// the same places, found in one of them: where little crosses. Elsewhere runs of about equal time
// end where little crosses. Runs of a topological order wait for each other in no cycle.
std::vector<std::size_t> coarse_units(const Problem& problem, std::size_t target);

// The same with the runs opened whose neighbours in the order are on another device: their nodes
// stand alone, as indivisible_units has them. At most about `most` nodes are let out.
std::vector<std::size_t> open_borders(const Problem& problem,
                                      const std::vector<std::size_t>& unit_of,
                                      const std::vector<DeviceId>& device_of_unit,
                                      std::size_t most);

}  // namespace kerf::partition
