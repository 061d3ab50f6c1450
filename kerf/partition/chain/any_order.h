// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The best split for devices in any order. Private to partition/chain/.
#pragma once

#include "kerf/partition/chain/in_order.h"

namespace kerf::partition {

// `given`: the answer for the order given, which is kept unless another is better.
Outcome<Plan, Infeasible> solve_in_any_order(const ChainInput& input,
                                             Outcome<Plan, Infeasible> given,
                                             const Options& options);

}  // namespace kerf::partition
