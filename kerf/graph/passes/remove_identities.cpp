// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/remove_identities.h"

#include <algorithm>

#include "kerf/graph/operator_effects.h"
#include "kerf/graph/renumber.h"
#include "kerf/graph/sharing.h"

namespace kerf {
namespace {

// A leaf that autograd cut off is another tensor, so whether a gradient is wanted counts too.
bool is_same(const Value& a, const Value& b) {
  return a.storage.valid() && a.storage == b.storage && a.dtype == b.dtype && a.shape == b.shape &&
         a.strides == b.strides && a.offset == b.offset && a.requires_grad == b.requires_grad;
}

// Calls of `contiguous` that matter: a copy on other strides than the traced ones would be seen, or
// its own strides decide about a copy that is, or about what Python code does.
class Packing {
 public:
  explicit Packing(const GraphData& data)
      : data_(data),
        decided_(with_blocks(data)),
        reached_(reached_by_strides(data, decided_)),
        writes_inputs_(writes_inputs(data)) {}

  bool is_needless(std::size_t n) const {
    const Node& node = data_.nodes[n];
    return packet_of(node.op) == "aten.contiguous" &&
           !std::binary_search(decided_.begin(), decided_.end(), NodeId(n)) &&
           !reached_[node.outputs[0].index()].valid() && !is_held(n);
  }

 private:
  // Does the caller get a result whose strides and memory depend on those of what it passes in; or
  // is it of an input that another one may overlap in a call, and be written?
  bool is_held(std::size_t n) const {
    const StorageId storage = data_.values[data_.nodes[n].outputs[0].index()].storage;
    const auto is_here = [&](ValueId other) {
      return storage.valid() && data_.values[other.index()].storage == storage;
    };
    const auto any_input = [&](const auto& holds) {
      return std::any_of(data_.inputs.begin(), data_.inputs.end(),
                         [&](const GraphInput& input) { return holds(input.value); });
    };
    if (writes_inputs_ && any_input(is_here)) return true;
    bool given = false;
    for (const GraphOutput& output : data_.outputs) {
      for_each_value(output.leaf, [&](ValueId other) { given = given || is_here(other); });
    }
    if (!given) return false;
    const std::vector<NodeId> reached = reached_by_strides(data_, {NodeId(n)});
    return any_input([&](ValueId input) { return reached[input.index()].valid(); });
  }

  static bool writes_inputs(const GraphData& data) {
    std::vector<bool> written(data.storages.size(), false);
    for (const Node& node : data.nodes) {
      for (const ValueId id : node.written) {
        const StorageId storage = data.values[id.index()].storage;
        if (storage.valid()) written[storage.index()] = true;
      }
    }
    return std::any_of(data.inputs.begin(), data.inputs.end(), [&](const GraphInput& input) {
      const StorageId storage = data.values[input.value.index()].storage;
      return storage.valid() && written[storage.index()];
    });
  }

  static std::vector<NodeId> with_blocks(const GraphData& data) {
    std::vector<NodeId> out = nodes_that_strides_decide(data);
    for (std::size_t n = 0; n < data.nodes.size(); ++n) {
      if (data.nodes[n].op == "opaque") out.emplace_back(n);
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  const GraphData& data_;
  std::vector<NodeId> decided_;
  std::vector<NodeId> reached_;
  bool writes_inputs_;
};

// Where gradients may come to in training, now or once a parameter is no longer frozen: memory that
// parameters, inputs and what is made of them are in.
class Learning {
 public:
  explicit Learning(const GraphData& data) : data_(data), learns_(data.storages.size(), false) {
    if (!data.training) return;
    for (const GraphInput& input : data.inputs) reach(input.value);
    for (const Weight& weight : data.weights) {
      if (weight.kind == WeightKind::parameter) reach(weight.value);
    }
    for (const Node& node : data.nodes) {
      bool any = false;
      for (const NamedArgument& argument : node.args) {
        for_each_value(argument.value, [&](ValueId id) { any = any || is_reached(id); });
      }
      if (!any) continue;
      for (const ValueId id : node.outputs) reach(id);
      for (const ValueId id : node.written) reach(id);
    }
  }

  // Does the call keep gradients from what it is given? It counts even where there are none yet.
  bool is_cut(const Node& node) const {
    const std::string_view packet = packet_of(node.op);
    return (packet == "aten.detach" || packet == "aten.detach_") && is_reached(node.outputs[0]);
  }

 private:
  bool is_reached(ValueId id) const {
    const StorageId storage = data_.values[id.index()].storage;
    return storage.valid() && learns_[storage.index()];
  }
  void reach(ValueId id) {
    if (!id.valid()) return;
    const Value& value = data_.values[id.index()];
    if (value.storage.valid() && is_floating(value.dtype)) learns_[value.storage.index()] = true;
  }

  const GraphData& data_;
  std::vector<bool> learns_;  // by storage
};

// The first argument, where the call gives back nothing else; nullptr otherwise.
const ValueId* find_given_back(const Captured& captured, const Packing& packing,
                               const Learning& learning, std::size_t n) {
  const Node& node = captured.data.nodes[n];
  const auto op = captured.operators.find(node.op);
  if (op == captured.operators.end() || node.args.empty() || !node.args[0].name.empty()) {
    return nullptr;
  }
  const auto* const first = node.args[0].value.find<ValueId>();
  if (first == nullptr || node.outputs.size() != 1 || !node.outputs[0].valid()) return nullptr;
  if (gives_back_first(op->second, node)) return first;
  if (learning.is_cut(node)) return nullptr;
  const std::vector<Value>& values = captured.data.values;
  if (!is_same(values[node.outputs[0].index()], values[first->index()])) return nullptr;
  return may_give_back_first(op->second, node) || packing.is_needless(n) ? first : nullptr;
}

}  // namespace

void remove_identities(Captured& captured) {
  const Packing packing(captured.data);
  const Learning learning(captured.data);
  std::vector<ValueId> stands_for = identity_map(captured.data);
  std::vector<bool> kept;
  for (std::size_t n = 0; n < captured.data.nodes.size(); ++n) {
    Node& node = captured.data.nodes[n];
    // Asked of the argument as it was traced: what a dropout gave has a place of its own there.
    const ValueId* const given_back = find_given_back(captured, packing, learning, n);
    if (given_back != nullptr) {
      stands_for[node.outputs[0].index()] = stands_for[given_back->index()];
    }
    kept.push_back(given_back == nullptr);
    map_uses(node, stands_for);
  }
  map_outputs(captured.data, stands_for);
  keep_nodes(captured, kept);
}

}  // namespace kerf
