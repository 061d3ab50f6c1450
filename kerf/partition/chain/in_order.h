// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The best split for devices in a fixed order. Private to partition/chain/.
#pragma once

#include <span>
#include <vector>

#include "kerf/partition/chain/class_table.h"
#include "kerf/partition/chain/intervals.h"
#include "kerf/partition/method.h"

namespace kerf::partition {

// What is found out about a problem once, whatever the order of its devices.
struct ChainInput {
  explicit ChainInput(const Problem& given);

  const Problem& problem;
  Intervals intervals;
  std::vector<bool> cuttable;
};

Outcome<Plan, Infeasible> place(const Problem& problem, const Arrangement& arrangement);

// Says what would help against a lack of memory in the split whose excess over the limits is least.
Infeasible explain_shortage(Infeasible reason);
// ... when a search that was stopped found nothing.
Infeasible unproved(Infeasible reason);

Outcome<Plan, Infeasible> solve_in_order(const ChainInput& input, std::span<const DeviceId> order,
                                         const Options& options);

// How good an order looks: bytes missing, then the busiest device, of its best split at some of the
// positions.
struct OrderScore {
  double overflow = kInfinity;
  double busiest = kInfinity;
  friend auto operator<=>(const OrderScore&, const OrderScore&) = default;
};
OrderScore score_order(const ChainInput& input, std::span<const DeviceId> order,
                       const std::vector<bool>& positions);

std::int64_t search_work(const Options& options);

}  // namespace kerf::partition
