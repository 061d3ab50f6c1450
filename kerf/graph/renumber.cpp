// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/renumber.h"

namespace kerf {
namespace {

void map_argument(Argument& argument, const std::vector<ValueId>& map) {
  if (auto* value = std::get_if<ValueId>(&argument.data)) *value = map[value->index()];
  if (auto* list = std::get_if<Argument::List>(&argument.data)) {
    for (Argument& element : *list) map_argument(element, map);
  }
}

}  // namespace

std::vector<ValueId> identity_map(const GraphData& data) {
  std::vector<ValueId> map;
  map.reserve(data.values.size());
  for (std::size_t i = 0; i < data.values.size(); ++i) map.emplace_back(i);
  return map;
}

void map_uses(Node& node, const std::vector<ValueId>& map) {
  for (NamedArgument& argument : node.args) map_argument(argument.value, map);
  for (ValueId& id : node.written) id = map[id.index()];
  for (ValueId& id : node.may_alias) id = map[id.index()];
}

void map_outputs(GraphData& data, const std::vector<ValueId>& map) {
  for (GraphOutput& output : data.outputs) map_argument(output.leaf, map);
}

void renumber_values(GraphData& data) {
  std::vector<ValueId> new_id(data.values.size());
  std::vector<Value> values;
  values.reserve(data.values.size());
  const auto place = [&](ValueId& id) {
    new_id[id.index()] = ValueId(values.size());
    values.push_back(std::move(data.values[id.index()]));
    id = new_id[id.index()];
  };
  for (GraphInput& input : data.inputs) place(input.value);
  for (Weight& weight : data.weights) place(weight.value);
  for (Node& node : data.nodes) {
    map_uses(node, new_id);
    for (ValueId& id : node.outputs) {
      if (id.valid()) place(id);
    }
  }
  map_outputs(data, new_id);
  data.values = std::move(values);
}

}  // namespace kerf
