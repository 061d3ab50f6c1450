// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/lower/units.h"

#include <algorithm>

#include "kerf/base/topological_order.h"

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

std::vector<Unit> collect_units(const Problem& problem, const std::vector<std::size_t>& unit_of) {
  const Graph& graph = problem.graph;
  std::vector<Unit> units(1 + *std::max_element(unit_of.begin(), unit_of.end()));
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    Unit& unit = units[unit_of[n]];
    unit.nodes.emplace_back(n);
    unit.time += problem.node_time(NodeId{n}).count;
    for (const NodeId before : graph.predecessors(NodeId{n})) {
      if (unit_of[before.index()] != unit_of[n]) unit.before.push_back(unit_of[before.index()]);
    }
    for (const ValueId id : graph.inputs_of(NodeId{n})) {
      const Value& value = graph.value(id);
      if (value.scalar) continue;
      if (value.origin == Origin::weight) unit.weights.push_back(value.storage);
      const bool made = value.origin == Origin::node;
      if (made && unit_of[value.producer.index()] != unit_of[n]) unit.tensors.push_back(id);
    }
  }
  for (Unit& unit : units) {
    const auto tidy = [](auto& list) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    };
    tidy(unit.tensors);
    tidy(unit.before);
    tidy(unit.weights);
  }
  return units;
}

std::vector<std::size_t> topological_order(const std::vector<Unit>& units) {
  Pairs edges;
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    for (const std::size_t before : units[u].before) {
      edges.emplace_back(static_cast<std::uint32_t>(before), u);
    }
  }
  const auto count = static_cast<std::uint32_t>(units.size());
  const Rows after = to_rows(count, edges);
  const auto order = least_first_order(count, each_next_of(after), by_own_number());
  return {order.begin(), order.end()};
}

}  // namespace kerf::partition
