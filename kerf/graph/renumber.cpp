// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/renumber.h"

namespace kerf {
namespace {

void renumber_argument(Argument& argument, const std::vector<ValueId>& map) {
  if (auto* value = std::get_if<ValueId>(&argument.data)) *value = map[value->index()];
  if (auto* list = std::get_if<Argument::List>(&argument.data)) {
    for (Argument& element : *list) renumber_argument(element, map);
  }
}

}  // namespace

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
    for (NamedArgument& argument : node.args) renumber_argument(argument.value, new_id);
    for (ValueId& id : node.written) id = new_id[id.index()];
    for (ValueId& id : node.may_alias) id = new_id[id.index()];
    for (ValueId& id : node.outputs) {
      if (id.valid()) place(id);
    }
  }
  for (GraphOutput& output : data.outputs) renumber_argument(output.leaf, new_id);
  data.values = std::move(values);
}

}  // namespace kerf
