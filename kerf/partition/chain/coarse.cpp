// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/coarse.h"

namespace kerf::partition {

std::vector<bool> coarse_positions(const Intervals& intervals, const std::vector<bool>& cuttable,
                                   std::size_t count) {
  const std::size_t end = intervals.num_nodes();
  std::vector<bool> chosen(end + 1);
  const double share = intervals.work_before(end) / static_cast<double>(count);
  std::size_t start = 1;
  for (std::size_t bucket = 1; start < end; ++bucket) {
    std::size_t best = end;
    std::size_t p = start;
    const double until = share * static_cast<double>(bucket);
    for (; p < end && (p == start || intervals.work_before(p) <= until); ++p) {
      if (cuttable[p] &&
          (best == end || intervals.crossing(p).bytes < intervals.crossing(best).bytes))
        best = p;
    }
    chosen[best] = true;
    start = p;
  }
  chosen[0] = chosen[end] = true;
  return chosen;
}

}  // namespace kerf::partition
