// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/refine/found_splits.h"

#include <algorithm>
#include <utility>

namespace kerf::place {

void keep_found(std::vector<Found>& splits, Found found) {
  if (found.objective == std::numeric_limits<double>::infinity()) return;
  for (const Found& other : splits) {
    if (other.device == found.device) return;
  }
  const auto place =
      std::upper_bound(splits.begin(), splits.end(), found,
                       [](const Found& a, const Found& b) { return a.objective < b.objective; });
  splits.insert(place, std::move(found));
}

}  // namespace kerf::place
