// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/graph/derive_impl.h"
#include "kerf/graph/verify.h"

namespace kerf {

Graph::Graph() {
  GraphData data;
  data.scopes.push_back({});
  *this = freeze(std::move(data));
}

Graph Graph::freeze(GraphData data, bool order_edges) {
  verify_graph(data);
  return GraphDerivation(std::move(data), order_edges).run();
}

NodeId Graph::find_node(std::string_view name) const {
  const auto found = std::find_if(nodes().begin(), nodes().end(),
                                  [&](const Node& node) { return node.name == name; });
  return found == nodes().end() ? NodeId{} : NodeId(found - nodes().begin());
}

std::span<const ValueId> Graph::inputs_of(NodeId id) const {
  return content_->inputs.row(id.index());
}
std::span<const NodeId> Graph::consumers(ValueId id) const {
  return content_->consumers.row(id.index());
}
std::span<const NodeId> Graph::predecessors(NodeId id) const {
  return content_->predecessors.row(id.index());
}
std::span<const NodeId> Graph::successors(NodeId id) const {
  return content_->successors.row(id.index());
}
std::span<const StorageId> Graph::reads(NodeId id) const { return content_->reads.row(id.index()); }
std::span<const StorageId> Graph::writes(NodeId id) const {
  return content_->writes.row(id.index());
}
bool Graph::is_written(StorageId id) const { return content_->written[id.index()]; }

std::string Graph::describe(NodeId id) const {
  const Node& node = this->node(id);
  const Scope& scope = this->scope(node.scope);
  std::string out = fmt::format("node '{}' ({}) in {} '{}'", node.name, node.op,
                                scope.class_name.empty() ? "module" : scope.class_name, scope.path);
  if (!node.source.empty()) out += fmt::format(", {}", node.source);
  return out;
}

}  // namespace kerf
