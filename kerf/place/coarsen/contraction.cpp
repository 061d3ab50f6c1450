// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/coarsen/contraction.h"

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"

namespace kerf::place {

UnitRows between_groups(const UnitRows& successors, std::span<const UnitId> group,
                        std::size_t groups) {
  PairsOf<UnitId, UnitId> pairs;
  pairs.reserve(successors.num_values());
  for (UnitId from{0}; from < successors.size(); ++from) {
    for (const UnitId to : successors[from]) {
      if (group[from] == group[to] || group[from] == kNoIndex || group[to] == kNoIndex) continue;
      pairs.emplace_back(group[from], group[to]);
    }
  }
  return to_rows(static_cast<std::uint32_t>(groups), pairs);
}

Instance merge_ordered(const Instance& instance, std::span<const UnitId> group,
                       std::size_t groups) {
  Instance out = merge(instance, group, groups);
  out.successors = between_groups(instance.successors, group, groups);
  out.predecessors = transpose(out.successors, out.num_units());
  out.own_order = count_up<UnitId>(groups);
  return out;
}

Split Contraction::to_fine(std::span<const SlotId> device) const {
  Split out;
  out.reserve(group_of.size());
  for (const UnitId group : group_of) out.push_back(device[group]);
  return out;
}

Split Contraction::to_coarse(std::span<const SlotId> device) const {
  Split out(instance.num_units(), SlotId{0});
  for (std::size_t u = 0; u < device.size(); ++u) out[group_of[u]] = device[u];
  return out;
}

}  // namespace kerf::place
