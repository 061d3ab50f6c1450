// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// Turns verified data into a Graph: canonical numbering, adjacency, reads and writes, order edges,
// glue, hash. One object per freeze.
class GraphDerivation {
 public:
  GraphDerivation(GraphData data, bool order_edges);
  Graph run();

 private:
  using Content = Graph::Content;

  void renumber();           // values: inputs, weights, node outputs; storages by first mention
  void derive_inputs();      // inputs per node, consumers per value
  void derive_memory();      // alias classes, reads, writes
  void derive_order_edges();
  void derive_adjacency();   // data and order edges together
  void derive_glue();
  void derive_hash();

  std::uint32_t alias_class(StorageId id);  // storages that may share memory have one class
  bool descends_from(ValueId value, NodeId writer, std::uint32_t memory);
  std::vector<std::vector<NodeId>> accessors_by_class();
  bool writes_class(NodeId id, std::uint32_t memory);

  Content content_;
  bool with_order_edges_;
  std::vector<std::uint32_t> alias_parent_;
  std::vector<bool> class_written_;
};

}  // namespace kerf
