// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/cut/blocks.h"

#include <algorithm>

namespace kerf::place {

std::vector<UnitId> cut_blocks(const Line& line, std::size_t count) {
  const std::size_t end = line.order.size();
  std::vector<UnitId> block(end);
  if (count >= end) {
    for (std::size_t i = 0; i < end; ++i) block[line.order[i]] = UnitId{i};
    return block;
  }
  const double share = 1 / static_cast<double>(std::max<std::size_t>(count, 1));
  const auto place_of = [&](double weight) {
    const auto at = std::lower_bound(line.weight_before.begin(), line.weight_before.end(), weight);
    return std::min(end, static_cast<std::size_t>(at - line.weight_before.begin()));
  };
  constexpr double kPlay = 0.25;  // of a share, either way
  UnitId number{0};
  std::size_t start = 0;
  for (std::size_t i = 1; start < end; ++i) {
    std::size_t best = end;
    if (i < count) {
      const double middle = share * static_cast<double>(i);
      const std::size_t low = std::max(start + 1, place_of(middle - kPlay * share));
      const std::size_t high = std::max(low, place_of(middle + kPlay * share));
      best = std::min(low, end);
      for (std::size_t place = low; place <= high && place < end; ++place) {
        if (line.crossing[place] < line.crossing[best]) best = place;
      }
    }
    for (; start < best; ++start) block[line.order[start]] = number;
    ++number;
  }
  return block;
}

}  // namespace kerf::place
