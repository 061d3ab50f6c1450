// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/remove_unused.h"

#include <algorithm>

#include "kerf/graph/renumber.h"

namespace kerf {
namespace {

bool has_effect(const Node& node) {
  return !node.written.empty() || node.random || !node.op.starts_with("aten.");
}

// By node: is it kept?
std::vector<bool> used_nodes(const GraphData& data) {
  std::vector<bool> used(data.values.size(), false);
  const auto use = [&](ValueId id) { used[id.index()] = true; };
  for (const GraphOutput& output : data.outputs) for_each_value(output.leaf, use);
  std::vector<bool> kept(data.nodes.size(), false);
  for (std::size_t n = data.nodes.size(); n-- > 0;) {
    const Node& node = data.nodes[n];
    kept[n] =
        has_effect(node) || std::any_of(node.outputs.begin(), node.outputs.end(),
                                        [&](ValueId id) { return id.valid() && used[id.index()]; });
    if (!kept[n]) continue;
    for (const NamedArgument& argument : node.args) for_each_value(argument.value, use);
  }
  return kept;
}

}  // namespace

Graph remove_unused(GraphData data) {
  const std::vector<bool> kept = used_nodes(data);
  std::vector<Node> nodes;
  for (std::size_t n = 0; n < kept.size(); ++n) {
    if (kept[n]) nodes.push_back(std::move(data.nodes[n]));
  }
  data.nodes = std::move(nodes);
  renumber_values(data);
  return Graph::freeze(std::move(data));
}

void remove_unused(Captured& captured) { keep_nodes(captured, used_nodes(captured.data)); }

}  // namespace kerf
