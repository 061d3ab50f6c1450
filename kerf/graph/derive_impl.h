// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// A plain union-find with path halving; the smaller number stands for a set.
inline std::uint32_t find_root(std::vector<std::uint32_t>& parent, std::uint32_t x) {
  while (parent[x] != x) x = parent[x] = parent[parent[x]];
  return x;
}

inline void unite(std::vector<std::uint32_t>& parent, std::uint32_t a, std::uint32_t b) {
  a = find_root(parent, a);
  b = find_root(parent, b);
  if (a != b) parent[std::max(a, b)] = std::min(a, b);
}

// Turns verified data into a Graph: canonical numbering, adjacency, reads and writes, order edges,
// glue, hash. One object per freeze.
class GraphDerivation {
 public:
  GraphDerivation(GraphData data, bool order_edges);
  Graph run();

  // The same graph with more groups of nodes that stay in one stage.
  static Graph add_glue(const Graph& graph, const std::vector<std::vector<NodeId>>& groups);

 private:
  explicit GraphDerivation(const Graph& graph)
      : content_(*graph.content_), with_order_edges_(true) {}

  using Content = Graph::Content;
  struct Access {
    NodeId node;
    bool writes;
  };

  void renumber();  // values: inputs, weights, node outputs; storages by first mention
  bool is_in_order() const;
  void renumber_storages();
  void note_origins();
  void derive_inputs();  // inputs per node, consumers per value
  void unite_aliases(const Node& node);
  void derive_memory();  // alias classes, reads, writes
  void derive_order_edges();
  void derive_adjacency();  // data and order edges together
  void derive_glue();
  void derive_hash();

  std::uint32_t alias_class(StorageId id);  // storages that may share memory have one class
  std::vector<std::vector<Access>> accesses_by_class();

  void glue(NodeId a, NodeId b);
  bool in_class(ValueId id, std::uint32_t memory);
  void glue_memory(std::uint32_t memory, const std::vector<Access>& accesses,
                   const std::vector<ValueId>& results, std::vector<bool>& used_here_only);
  void close_groups();
  void collect_groups();

  Content content_;
  bool with_order_edges_;
  std::vector<std::uint32_t> alias_parent_;
  std::vector<bool> class_written_;
  std::vector<std::uint32_t> group_;  // of nodes that are glued
};

}  // namespace kerf
