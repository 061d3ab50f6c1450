// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/sharing.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "kerf/base/union_find.h"
#include "kerf/graph/operator_effects.h"

namespace kerf {
namespace {

bool may_share(const GraphData& data, const Node& node, ValueId argument, ValueId result) {
  const StorageId storage = data.values[result.index()].storage;
  if (!storage.valid() || !data.values[argument.index()].storage.valid()) return false;
  return data.values[argument.index()].storage == storage ||
         std::find(node.may_alias.begin(), node.may_alias.end(), argument) != node.may_alias.end();
}

template <class Visit>
void for_each_pair(const GraphData& data, const Node& node, Visit&& visit) {
  for (const NamedArgument& given : node.args) {
    for_each_value(given.value, [&](ValueId argument) {
      for (const ValueId result : node.outputs) {
        if (result.valid() && may_share(data, node, argument, result)) visit(argument, result);
      }
    });
  }
}

// The names of memory that are on the one and on the other side of a node, if it made copies.
class Sides {
 public:
  Sides(const GraphData& data, NodeId node) : data_(data), names_(data.values.size()) {
    std::unordered_map<std::size_t, ValueId> outside;  // by storage; looked up only
    const auto join_outside = [&](ValueId id) {
      const StorageId storage = data.values[id.index()].storage;
      if (storage.valid()) join(outside.try_emplace(storage.index(), id).first->second, id);
    };
    for (const GraphInput& input : data.inputs) join_outside(input.value);
    for (const Weight& weight : data.weights) join_outside(weight.value);
    for (std::size_t n = 0; n < data.nodes.size(); ++n) {
      if (NodeId(n) == node) continue;
      for_each_pair(data, data.nodes[n], [&](ValueId a, ValueId b) { join(a, b); });
    }
    for (const SharingPair& pair : sharing_pairs(data, node)) {
      sides_[0].push_back(root(pair.argument));
      sides_[1].push_back(root(pair.result));
    }
  }

  bool is_on(std::size_t side, ValueId id) {
    const std::uint32_t found = root(id);
    return std::find(sides_[side].begin(), sides_[side].end(), found) != sides_[side].end();
  }

  // One past the last node that looks at memory on this side; all nodes when the caller holds it.
  std::size_t looked_at_until(std::size_t side) {
    bool held = false;
    const auto look = [&](ValueId id) { held = held || is_on(side, id); };
    for (const GraphInput& input : data_.inputs) look(input.value);
    for (const Weight& weight : data_.weights) look(weight.value);
    for (const GraphOutput& output : data_.outputs) for_each_value(output.leaf, look);
    for (std::size_t n = data_.nodes.size(); n-- > 0 && !held;) {
      for (const NamedArgument& given : data_.nodes[n].args) for_each_value(given.value, look);
      if (held) return n + 1;
    }
    return held ? data_.nodes.size() : 0;
  }

 private:
  std::uint32_t root(ValueId id) { return names_.find(static_cast<std::uint32_t>(id.index())); }
  void join(ValueId a, ValueId b) {
    names_.join(static_cast<std::uint32_t>(a.index()), static_cast<std::uint32_t>(b.index()));
  }

  const GraphData& data_;
  UnionFind names_;
  std::array<std::vector<std::uint32_t>, 2> sides_;  // of arguments, of results
};

}  // namespace

std::vector<SharingPair> sharing_pairs(const GraphData& data, NodeId node) {
  std::vector<SharingPair> out;
  for_each_pair(data, data.nodes[node.index()], [&](ValueId argument, ValueId result) {
    const auto storage = [&](ValueId id) { return data.values[id.index()].storage; };
    out.push_back({argument, result, storage(argument) == storage(result)});
  });
  return out;
}

bool sharing_is_seen(const GraphData& data, NodeId node) {
  const auto writes = [](const Node& each) { return !each.written.empty(); };
  const auto after = data.nodes.begin() + static_cast<std::ptrdiff_t>(node.index()) + 1;
  if (std::none_of(after, data.nodes.end(), writes)) return false;
  Sides sides(data, node);
  const std::size_t until[] = {sides.looked_at_until(0), sides.looked_at_until(1)};
  for (std::size_t n = node.index() + 1; n < data.nodes.size(); ++n) {
    for (const ValueId id : data.nodes[n].written) {
      // What is on both sides, by another way than through the node, is taken for seen.
      if (sides.is_on(0, id) && n < until[1]) return true;
      if (sides.is_on(1, id) && n < until[0]) return true;
    }
  }
  return false;
}

std::vector<NodeId> nodes_that_strides_decide(const GraphData& data) {
  // Most memory is never written: that is told for all nodes at once.
  UnionFind names(data.storages.size());
  const auto storage = [&](ValueId id) {
    return static_cast<std::uint32_t>(data.values[id.index()].storage.index());
  };
  for (const Node& node : data.nodes) {
    for_each_pair(data, node, [&](ValueId a, ValueId b) { names.join(storage(a), storage(b)); });
  }
  std::vector<bool> written(data.storages.size(), false);
  for (const Node& node : data.nodes) {
    for (const ValueId id : node.written) {
      if (data.values[id.index()].storage.valid()) written[names.find(storage(id))] = true;
    }
  }
  std::vector<NodeId> out;
  for (std::size_t n = 0; n < data.nodes.size(); ++n) {
    const Node& node = data.nodes[n];
    // What is changed in place is given back, whatever the strides.
    if (!node.written.empty() || !may_copy_on_some_strides(node)) continue;
    const std::vector<SharingPair> pairs = sharing_pairs(data, NodeId(n));
    const bool touched = std::any_of(pairs.begin(), pairs.end(), [&](const SharingPair& pair) {
      return written[names.find(storage(pair.argument))];
    });
    if (touched && sharing_is_seen(data, NodeId(n))) out.emplace_back(n);
  }
  return out;
}

std::vector<NodeId> reached_by_strides(const GraphData& data, const std::vector<NodeId>& decided) {
  std::vector<NodeId> out(data.values.size());
  for (std::size_t n = data.nodes.size(); n-- > 0;) {
    const Node& node = data.nodes[n];
    NodeId reached;
    if (std::binary_search(decided.begin(), decided.end(), NodeId(n))) {
      reached = NodeId(n);
    } else if (!lays_out_by_rows(node)) {
      for (const ValueId id : node.outputs) {
        if (id.valid() && out[id.index()].valid()) reached = out[id.index()];
      }
    }
    if (!reached.valid()) continue;
    for (const NamedArgument& given : node.args) {
      for_each_value(given.value, [&](ValueId id) { out[id.index()] = reached; });
    }
  }
  return out;
}

}  // namespace kerf
