// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kerf/base/rows.h"
#include "kerf/base/sort_unique.h"
#include "kerf/partition/fx/original_error.h"
#include "kerf/partition/fx/partition.h"

namespace kerf::partition::fx {
namespace {

// Which partitions hold a node, ascending: leaves may be in several, and hand-made sets may
// overlap.
Rows holders_of(const OpGraph& graph, std::span<const Partition> partitions) {
  Rows nodes;
  for (const Partition& partition : partitions) nodes.append(partition.nodes);
  return transpose(nodes, static_cast<std::uint32_t>(graph.num_nodes()));
}

}  // namespace

void set_relations(const OpGraph& graph, std::vector<Partition>& partitions) {
  const Rows holders = holders_of(graph, partitions);
  for (Partition& partition : partitions) {
    partition.parents.clear();
    partition.children.clear();
  }
  for (std::uint32_t p = 0; p < partitions.size(); ++p) {
    std::vector<std::size_t>& parents = partitions[p].parents;
    for (const OpIndex n : partitions[p].nodes) {
      for (const OpIndex input : graph.inputs(n)) {
        const auto from = holders[input];
        if (std::binary_search(from.begin(), from.end(), p)) continue;
        parents.insert(parents.end(), from.begin(), from.end());
      }
    }
    sort_unique(parents);
    for (const std::size_t parent : parents) partitions[parent].children.push_back(p);
  }
}

ReachedOrder reached_order(std::span<const Partition> partitions) {
  std::vector<std::size_t> waiting(partitions.size());
  std::vector<bool> reached(partitions.size());
  std::vector<std::size_t> found;
  const auto reach = [&](std::size_t p) {
    if (!reached[p]) found.push_back(p);
    reached[p] = true;
  };
  for (std::size_t p = 0; p < partitions.size(); ++p) {
    if (partitions[p].parents.empty()) reach(p);
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const std::size_t child : partitions[found[i]].children) {
      ++waiting[child];
      reach(child);
    }
  }
  ReachedOrder out;
  for (const std::size_t p : found) {
    if (waiting[p] == 0) out.order.push_back(p);
  }
  for (std::size_t i = 0; i < out.order.size(); ++i) {
    for (const std::size_t child : partitions[out.order[i]].children) {
      if (--waiting[child] == 0) out.order.push_back(child);
    }
  }
  out.cyclic = out.order.size() < found.size();
  return out;
}

void set_levels(std::vector<Partition>& partitions) {
  const ReachedOrder reached = reached_order(partitions);
  if (reached.cyclic) {
    throw OriginalError(OriginalError::Kind::endless, "the partitions depend on each other");
  }
  std::vector<std::int64_t> level(partitions.size(), 0);
  for (const std::size_t p : reached.order) {
    partitions[p].level = level[p];
    for (const std::size_t child : partitions[p].children) {
      level[child] = std::max(level[child], level[p] + 1);
    }
  }
}

bool depends_on_itself(std::span<const Partition> partitions, std::size_t which) {
  std::vector<bool> seen(partitions.size());
  std::vector<std::size_t> stack{which};
  while (!stack.empty()) {
    const std::size_t p = stack.back();
    stack.pop_back();
    for (const std::size_t child : partitions[p].children) {
      if (child == which) return true;
      if (!seen[child]) {
        seen[child] = true;
        stack.push_back(child);
      }
    }
  }
  return false;
}

}  // namespace kerf::partition::fx
