// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/subgraph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "kerf/base/hash.h"
#include "kerf/graph/renumber.h"

namespace kerf {
namespace {

bool is_one_of(std::span<const NodeId> nodes, NodeId node) {
  return std::binary_search(nodes.begin(), nodes.end(), node);
}

bool is_used_outside(const Graph& graph, std::span<const NodeId> nodes, ValueId id) {
  const auto users = graph.consumers(id);
  return std::any_of(users.begin(), users.end(),
                     [&](NodeId user) { return !is_one_of(nodes, user); });
}

std::unordered_set<std::size_t> results_of(const Graph& graph) {
  std::unordered_set<std::size_t> out;
  for (const GraphOutput& output : graph.outputs()) {
    for_each_value(output.leaf, [&](ValueId id) { out.insert(id.index()); });
  }
  return out;
}

// The records of the nodes, with values and storages in the order in which they are met. Scopes are
// left to the caller.
GraphData records(const Graph& graph, std::span<const NodeId> nodes, const Border& border) {
  GraphData out;
  out.name = graph.name();
  out.training = graph.data().training;
  out.example_batch = graph.data().example_batch;
  std::vector<ValueId> place(graph.num_values());         // in `out`
  std::unordered_map<std::size_t, StorageId> storage_of;  // in `out`; looked up only
  const auto add = [&](ValueId id) {
    place[id.index()] = ValueId(out.values.size());
    Value& value = out.values.emplace_back(graph.value(id));
    if (value.storage.valid()) {
      const auto [found, is_new] =
          storage_of.try_emplace(value.storage.index(), StorageId(out.storages.size()));
      if (is_new) out.storages.push_back(graph.storage(value.storage));
      value.storage = found->second;
    }
    return place[id.index()];
  };
  for (const ValueId id : border.inputs) {
    const std::size_t number = out.inputs.size();
    out.inputs.push_back({add(id), fmt::format("args.{}", number)});
  }
  for (const ValueId id : border.weights) {
    Weight weight = graph.weights()[graph.value(id).position];
    weight.value = add(id);
    out.weights.push_back(std::move(weight));
  }
  for (const NodeId id : nodes) {
    Node node = graph.node(id);
    map_uses(node, place);
    for (ValueId& made : node.outputs) {
      if (made.valid()) made = add(made);
    }
    out.nodes.push_back(std::move(node));
  }
  for (const ValueId id : border.outputs) {
    const std::size_t number = out.outputs.size();
    out.outputs.push_back({{place[id.index()]}, fmt::format("{}", number)});
  }
  return out;
}

// Numbers in place of what depends on the batch, and numbers in place of names.
class Anonymous {
 public:
  explicit Anonymous(std::int64_t batch) : batch_(batch) {}

  void erase(GraphData& data) {
    data.name.clear();
    data.example_batch = 0;
    data.scopes = {Scope{}};
    for (Storage& storage : data.storages) storage.bytes = at_batch(storage.bytes);
    std::size_t number = 0;
    for (Value& value : data.values) {
      value.name = fmt::format("v{}", number++);
      value.shape = at_batch(value.shape);
      value.strides = at_batch(value.strides);
      value.offset = at_batch(value.offset);
    }
    number = 0;
    for (Weight& weight : data.weights) weight.names = {fmt::format("w{}", number++)};
    number = 0;
    for (Node& node : data.nodes) {
      node.name = fmt::format("n{}", number++);
      node.scope = ScopeId{0};
      node.source.clear();
      node.region = renamed_region(node.region);
      for (NamedArgument& argument : node.args) erase(argument.value);
    }
  }

 private:
  Expr at_batch(const Expr& size) const {
    return size.is_constant() ? size : Expr(size.eval(batch_));
  }
  Sizes at_batch(const Sizes& sizes) const {
    std::vector<Expr> out;
    for (const Expr& size : sizes) out.push_back(at_batch(size));
    return out;
  }
  void erase(Argument& argument) {
    if (auto* size = std::get_if<Expr>(&argument.data)) *size = at_batch(*size);
    if (auto* list = std::get_if<Argument::List>(&argument.data)) {
      for (Argument& element : *list) erase(element);
    }
  }

  // Regions are numbered in a model; here in the order in which they are met. One inside of another
  // stays so.
  std::string renamed_region(const std::string& region) {
    if (region.empty()) return region;
    const std::size_t slash = region.rfind('/');
    const std::string around =
        slash == std::string::npos ? std::string() : renamed_region(region.substr(0, slash)) + "/";
    return around + std::to_string(regions_.try_emplace(region, regions_.size()).first->second);
  }

  std::int64_t batch_;
  std::map<std::string, std::size_t> regions_;
};

}  // namespace

Border find_border(const Graph& graph, std::span<const NodeId> nodes) {
  Border out;
  std::unordered_set<std::size_t> seen;
  for (const NodeId node : nodes) {
    for (const ValueId id : graph.inputs_of(node)) {
      const Value& value = graph.value(id);
      if (value.origin == Origin::node && is_one_of(nodes, value.producer)) continue;
      if (!seen.insert(id.index()).second) continue;
      (value.origin == Origin::weight ? out.weights : out.inputs).push_back(id);
    }
  }
  const std::unordered_set<std::size_t> results = results_of(graph);
  for (const NodeId node : nodes) {
    for (const ValueId id : graph.node(node).outputs) {
      if (!id.valid()) continue;
      if (results.contains(id.index()) || is_used_outside(graph, nodes, id)) {
        out.outputs.push_back(id);
      }
    }
  }
  return out;
}

Graph subgraph(const Graph& graph, std::span<const NodeId> nodes) {
  GraphData data = records(graph, nodes, find_border(graph, nodes));
  data.scopes = graph.scopes();
  return Graph::freeze(std::move(data));
}

std::string signature(const Graph& graph, std::span<const NodeId> nodes, std::int64_t batch) {
  GraphData data = records(graph, nodes, find_border(graph, nodes));
  Hasher hasher;
  for (const NodeId node : nodes) {
    if (graph.node(node).op == "opaque") hasher.add(graph.hash()).add(graph.node(node).name);
  }
  Anonymous(batch).erase(data);
  for (const Weight& weight : data.weights) hasher.add(weight.data);
  hasher.add(Graph::freeze(std::move(data)).hash());
  return hasher.hex();
}

}  // namespace kerf
