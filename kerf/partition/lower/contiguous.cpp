// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/lower/contiguous.h"

namespace kerf::partition {

std::vector<bool> cut_positions(const Graph& graph) {
  // +1 where a group's inside begins, -1 past its end: a position is free where the sum is zero.
  std::vector<int> change(graph.num_nodes() + 2);
  for (const std::vector<NodeId>& group : graph.glued()) {
    ++change[group.front().index() + 1];
    --change[group.back().index() + 1];
  }
  std::vector<bool> cuttable(graph.num_nodes() + 1);
  int inside = 0;
  for (std::size_t position = 0; position < cuttable.size(); ++position) {
    inside += change[position];
    cuttable[position] = inside == 0;
  }
  return cuttable;
}

std::vector<std::vector<NodeId>> intervals(std::span<const std::size_t> cuts) {
  std::vector<std::vector<NodeId>> stages;
  for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
    std::vector<NodeId>& stage = stages.emplace_back();
    for (std::size_t node = cuts[k]; node < cuts[k + 1]; ++node) stage.emplace_back(node);
  }
  return stages;
}

}  // namespace kerf::partition
