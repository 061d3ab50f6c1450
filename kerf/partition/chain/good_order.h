// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// An order of devices for problems that are too large for all orders. Private to partition/chain/.
#pragma once

#include <vector>

#include "kerf/partition/chain/in_order.h"

namespace kerf::partition {

// The best-looking of the orders given here, fast devices first and last, large memories first,
// host devices first and last; then neighbours change places for as long as that helps. Judged by
// the best splits at some of the positions; the number of orders tried is limited by the size of
// the graph.
std::vector<DeviceId> find_good_order(const ChainInput& input,
                                      std::vector<std::vector<DeviceId>> starts);

}  // namespace kerf::partition
