// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the solvers are given and what they look for. Private to partition/chain/.
#pragma once

#include <cstddef>
#include <vector>

#include "kerf/partition/chain/intervals.h"
#include "kerf/partition/method.h"

namespace kerf::partition {

// What is found out about a problem once, whatever the order of its devices.
struct ChainInput {
  explicit ChainInput(const Problem& given);

  const Problem& problem;
  Intervals intervals;
  std::vector<bool> cuttable;  // by position; 0 and the end are
  LowerBound bound;
};

// Stages that are intervals of the graph's order: one device for each, and where they end.
struct Arrangement {
  std::vector<DeviceId> devices = {};
  std::vector<std::size_t> cuts = {0};  // one more than devices
};
Outcome<Plan, Infeasible> place(const ChainInput& input, const Arrangement& arrangement);

// Says what would help against a lack of memory in the split whose excess over the limits is least.
Infeasible explain_shortage(Infeasible reason);
// ... when a search that was stopped found nothing.
Infeasible unproved(Infeasible reason);

}  // namespace kerf::partition
