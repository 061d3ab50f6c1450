// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace kerf {

// Times between marks on a device, without what the marks themselves take: the same amount off each
// (down to 0), so that they add up to `total`, which was measured without marks in between. Times
// that are below `total` together are scaled up to it. O(n log n).
std::vector<double> without_probe_cost(std::vector<double> times, double total);

}  // namespace kerf
