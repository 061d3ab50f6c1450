// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/bounds/bounds.h"

namespace kerf::partition {

std::vector<std::size_t> indivisible_units(const Graph& graph) {
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> units(graph.num_nodes(), kNone);
  std::vector<const std::vector<NodeId>*> group_of(graph.num_nodes());
  for (const std::vector<NodeId>& group : graph.glued()) group_of[group.front().index()] = &group;
  std::size_t next = 0;
  for (std::size_t n = 0; n < units.size(); ++n) {
    if (units[n] != kNone) continue;
    units[n] = next++;
    if (group_of[n] == nullptr) continue;
    for (const NodeId member : *group_of[n]) units[member.index()] = units[n];
  }
  return units;
}

}  // namespace kerf::partition
