// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/builder.h"

#include <utility>

#include "kerf/graph/unique_names.h"

namespace kerf {

GraphBuilder::GraphBuilder(std::string name, bool training) {
  data_.name = std::move(name);
  data_.training = training;
  data_.scopes.push_back({});
  scopes_.emplace("", ScopeId(0));
}

bool GraphBuilder::add_condition(Condition condition) {
  const bool holds = condition.holds(data_.example_batch);
  for (const Condition& known : data_.conditions) {
    if (known.left == condition.left && known.relation == condition.relation &&
        known.right == condition.right) {
      return holds;
    }
  }
  data_.conditions.push_back(std::move(condition));
  return holds;
}

ScopeId GraphBuilder::add_scope(const std::string& path, const std::string& class_name) {
  const auto [entry, fresh] = scopes_.emplace(path, ScopeId(data_.scopes.size()));
  if (fresh) data_.scopes.push_back({path, class_name});
  if (path.empty() && data_.scopes[0].class_name.empty()) data_.scopes[0].class_name = class_name;
  return entry->second;
}

ValueId GraphBuilder::add_value(TensorSpec spec) {
  Value value;
  value.name = std::move(spec.name);
  value.dtype = spec.dtype;
  value.scalar = spec.scalar;
  if (!spec.scalar) {
    value.requires_grad = spec.requires_grad;
    value.shape = std::move(spec.shape);
    value.strides = std::move(spec.strides);
    value.offset = std::move(spec.offset);
    const auto [entry, fresh] =
        storages_.emplace(spec.storage_key, StorageId(data_.storages.size()));
    if (fresh) data_.storages.push_back({std::move(spec.storage_bytes)});
    value.storage = entry->second;
  }
  data_.values.push_back(std::move(value));
  return ValueId(data_.values.size() - 1);
}

ValueId GraphBuilder::add_input(std::string path, TensorSpec spec) {
  const ValueId id = add_value(std::move(spec));
  data_.inputs.push_back({id, std::move(path)});
  return id;
}

ValueId GraphBuilder::add_weight(std::vector<std::string> names, WeightKind kind, TensorSpec spec,
                                 std::string data) {
  const ValueId id = add_value(std::move(spec));
  data_.weights.push_back({id, kind, std::move(names), std::move(data)});
  return id;
}

std::vector<ValueId> GraphBuilder::add_node(Node node,
                                            const std::vector<const TensorSpec*>& outputs) {
  node.outputs.clear();
  for (const TensorSpec* spec : outputs) {
    node.outputs.push_back(spec == nullptr ? ValueId{} : add_value(*spec));
  }
  std::vector<ValueId> out = node.outputs;
  data_.nodes.push_back(std::move(node));
  return out;
}

void GraphBuilder::set_specs(std::string in_spec, std::string out_spec) {
  data_.in_spec = std::move(in_spec);
  data_.out_spec = std::move(out_spec);
}

Graph GraphBuilder::finish() {
  GraphData data = std::move(data_);
  *this = GraphBuilder("", false);
  make_value_names_unique(data);
  return Graph::freeze(std::move(data));
}

}  // namespace kerf
