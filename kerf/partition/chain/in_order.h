// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The best split for devices in a fixed order. Private to partition/chain/.
#pragma once

#include <span>
#include <vector>

#include "kerf/base/infinity.h"
#include "kerf/partition/chain/chain_input.h"

namespace kerf::partition {

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
