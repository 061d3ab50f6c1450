// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/unique_names.h"

#include <fmt/format.h>

#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace kerf {

void make_value_names_unique(GraphData& data) {
  std::unordered_map<std::string, int> taken;
  for (Value& value : data.values) {
    int& uses = taken[value.name];
    std::string name = uses == 0 ? value.name : fmt::format("{}.{}", value.name, uses);
    while (uses++ > 0 && taken.contains(name)) name = fmt::format("{}.{}", value.name, uses);
    if (name == value.name) continue;
    taken[name] = 1;
    value.name = std::move(name);
  }
}

void make_node_names_unique(GraphData& data) {
  std::unordered_set<std::string> taken;
  for (Node& node : data.nodes) {
    std::string name = node.name;
    for (int i = 1; !taken.insert(name).second; ++i) name = fmt::format("{}_i{}", node.name, i);
    node.name = std::move(name);
  }
}

}  // namespace kerf
