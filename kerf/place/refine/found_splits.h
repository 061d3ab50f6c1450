// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace kerf::place {

// A split that a search came to; an infinite objective: none.
struct Found {
  std::vector<std::uint32_t> device;
  double objective = std::numeric_limits<double>::infinity();
  std::int64_t work = 0;
};

// Best first, each split once; of equal ones the earlier, so that the order of tasks decides and
// not that of threads.
void keep_found(std::vector<Found>& splits, Found found);

}  // namespace kerf::place
