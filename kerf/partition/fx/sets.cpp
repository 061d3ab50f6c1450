// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kerf/base/sort_unique.h"
#include "kerf/partition/fx/partition.h"

namespace kerf::partition::fx {
namespace {

bool holds(std::span<const OpIndex> nodes, OpIndex node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

}  // namespace

void add_node(const OpGraph& graph, std::vector<OpIndex>& nodes, OpIndex node) {
  for (const OpIndex input : graph.inputs(node)) {
    if (graph.node(input).leaf && !holds(nodes, input)) nodes.push_back(input);
  }
  if (!holds(nodes, node)) nodes.push_back(node);
}

void remove_node(const OpGraph& graph, std::vector<OpIndex>& nodes, OpIndex node) {
  const auto found = std::find(nodes.begin(), nodes.end(), node);
  if (found == nodes.end()) return;
  nodes.erase(found);
  for (const OpIndex input : graph.inputs(node)) {
    const auto users = graph.users(input);
    if (!graph.node(input).leaf ||
        std::any_of(users.begin(), users.end(), [&](OpIndex user) { return holds(nodes, user); })) {
      continue;
    }
    const auto leaf = std::find(nodes.begin(), nodes.end(), input);
    if (leaf != nodes.end()) nodes.erase(leaf);
  }
}

std::vector<OpIndex> with_leaves(const OpGraph& graph, std::span<const OpIndex> ops) {
  std::vector<OpIndex> nodes(ops.begin(), ops.end());
  for (const OpIndex op : ops) {
    for (const OpIndex input : graph.inputs(op)) {
      if (graph.node(input).leaf) nodes.push_back(input);
    }
  }
  sort_unique(nodes);
  return nodes;
}

void combine(const OpGraph& graph, std::vector<Partition>& partitions, std::size_t a,
             std::size_t b) {
  Partition both;
  both.nodes = partitions[a].nodes;
  std::vector<OpIndex> sorted = both.nodes;
  std::sort(sorted.begin(), sorted.end());
  for (const OpIndex n : partitions[b].nodes) {
    if (!std::binary_search(sorted.begin(), sorted.end(), n)) both.nodes.push_back(n);
  }
  both.used_bytes = used_bytes(graph, both.nodes);
  partitions.push_back(std::move(both));
  partitions.erase(partitions.begin() + static_cast<std::ptrdiff_t>(std::max(a, b)));
  partitions.erase(partitions.begin() + static_cast<std::ptrdiff_t>(std::min(a, b)));
  reorganize(graph, partitions);
}

void reorganize(const OpGraph& graph, std::vector<Partition>& partitions) {
  for (std::size_t p = 0; p < partitions.size(); ++p) {
    partitions[p].id = static_cast<std::int64_t>(p);
  }
  set_relations(graph, partitions);
}

std::vector<std::int64_t> node_to_partition(const OpGraph& graph,
                                            std::span<const Partition> partitions) {
  std::vector<std::int64_t> map(graph.num_nodes(), kNoPartition);
  for (const Partition& partition : partitions) {
    for (const OpIndex n : partition.nodes) map[n] = partition.id;
  }
  return map;
}

}  // namespace kerf::partition::fx
