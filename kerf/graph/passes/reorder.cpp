// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/reorder.h"

#include <algorithm>

#include "kerf/base/error.h"
#include "kerf/base/rng.h"

namespace kerf {
namespace {

std::vector<std::vector<NodeId>> successors_by_data(const Graph& graph) {
  std::vector<std::vector<NodeId>> out(graph.num_nodes());
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    for (const ValueId id : graph.inputs_of(NodeId(n))) {
      const Value& value = graph.value(id);
      if (value.origin != Origin::node) continue;
      auto& list = out[value.producer.index()];
      if (list.empty() || list.back() != NodeId(n)) list.push_back(NodeId(n));
    }
  }
  return out;
}

}  // namespace

std::vector<NodeId> random_order(const Graph& graph, std::uint64_t seed, bool order_edges) {
  auto successors = successors_by_data(graph);
  if (order_edges) {
    for (const Edge& edge : graph.order_edges()) successors[edge.from.index()].push_back(edge.to);
  }
  std::vector<std::size_t> waiting(graph.num_nodes(), 0);
  for (const auto& list : successors) {
    for (const NodeId to : list) ++waiting[to.index()];
  }
  std::vector<NodeId> ready;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    if (waiting[n] == 0) ready.push_back(NodeId(n));
  }
  Rng rng(seed);
  std::vector<NodeId> order;
  order.reserve(graph.num_nodes());
  while (!ready.empty()) {
    std::swap(ready[rng.below(ready.size())], ready.back());
    const NodeId node = ready.back();
    ready.pop_back();
    order.push_back(node);
    for (const NodeId to : successors[node.index()]) {
      if (--waiting[to.index()] == 0) ready.push_back(to);
    }
  }
  KERF_CHECK(order.size() == graph.num_nodes(), "a frozen graph has a topological order");
  return order;
}

Graph reorder(const Graph& graph, std::span<const NodeId> order) {
  GraphData data = graph.data();
  std::vector<bool> seen(graph.num_nodes(), false);
  data.nodes.clear();
  for (const NodeId id : order) {
    if (id.index() >= seen.size() || seen[id.index()]) {
      throw Error(
          ErrorKind::invalid_graph,
          "[graph.reorder] a node is missing or named twice; expected every node once; give "
          "a permutation");
    }
    seen[id.index()] = true;
    data.nodes.push_back(graph.node(id));
  }
  if (data.nodes.size() != graph.num_nodes()) {
    throw Error(ErrorKind::invalid_graph,
                "[graph.reorder] some nodes are missing; expected every node once; give a "
                "permutation");
  }
  return Graph::freeze(std::move(data));
}

}  // namespace kerf
