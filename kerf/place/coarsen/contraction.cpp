// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/coarsen/contraction.h"

#include <numeric>

#include "kerf/base/infinity.h"

namespace kerf::place {

Rows between_groups(const Rows& successors, std::span<const std::uint32_t> group,
                    std::size_t groups) {
  Pairs pairs;
  pairs.reserve(successors.num_values());
  for (std::uint32_t from = 0; from < successors.size(); ++from) {
    for (const std::uint32_t to : successors[from]) {
      if (group[from] == group[to] || group[from] == kNoIndex || group[to] == kNoIndex) continue;
      pairs.emplace_back(group[from], group[to]);
    }
  }
  return to_rows(static_cast<std::uint32_t>(groups), pairs);
}

Instance merge_ordered(const Instance& instance, std::span<const std::uint32_t> group,
                       std::size_t groups) {
  Instance out = merge(instance, group, groups);
  out.successors = between_groups(instance.successors, group, groups);
  out.predecessors = transpose(out.successors, out.num_units());
  out.own_order.resize(groups);
  std::iota(out.own_order.begin(), out.own_order.end(), 0U);
  return out;
}

std::vector<std::uint32_t> Contraction::to_fine(std::span<const std::uint32_t> device) const {
  std::vector<std::uint32_t> out;
  out.reserve(group_of.size());
  for (const std::uint32_t group : group_of) out.push_back(device[group]);
  return out;
}

std::vector<std::uint32_t> Contraction::to_coarse(std::span<const std::uint32_t> device) const {
  std::vector<std::uint32_t> out(instance.num_units(), 0);
  for (std::size_t u = 0; u < device.size(); ++u) out[group_of[u]] = device[u];
  return out;
}

}  // namespace kerf::place
