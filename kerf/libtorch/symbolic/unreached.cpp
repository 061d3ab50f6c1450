// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/symbolic/unreached.h"

#include <algorithm>

#include "kerf/graph/arguments.h"

namespace kerf {
namespace {

class Reached {
 public:
  explicit Reached(GraphData& data) : data_(data), storages_(data.storages.size()) {
    for (const GraphInput& input : data.inputs) reach(input.value);
    for (const Weight& weight : data.weights) reach(weight.value);
    for (const GraphOutput& output : data.outputs) {
      for_each_value(output.leaf, [&](ValueId id) { reach(id); });
    }
  }

  void visit(Node& node) {
    if (!node.grad_enabled || !has_gradient(node, /*reached=*/false)) return;
    if (has_gradient(node, /*reached=*/true)) {
      for (const NamedArgument& argument : node.args) {
        for_each_value(argument.value, [&](ValueId id) {
          if (data_.values[id.index()].requires_grad) reach(id);
        });
      }
      return;
    }
    node.grad_enabled = false;
    for (const ValueId id : node.outputs) {
      if (id.valid()) data_.values[id.index()].requires_grad = false;
    }
  }

 private:
  void reach(ValueId id) {
    const StorageId storage = data_.values[id.index()].storage;
    if (storage.valid()) storages_[storage.index()] = true;
  }

  // Of any of its results; of one in memory that was reached.
  bool has_gradient(const Node& node, bool reached) const {
    return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
      if (!id.valid() || !data_.values[id.index()].requires_grad) return false;
      const StorageId storage = data_.values[id.index()].storage;
      return !reached || (storage.valid() && storages_[storage.index()]);
    });
  }

  GraphData& data_;
  std::vector<bool> storages_;
};

}  // namespace

void drop_unreached(GraphData& data) {
  Reached reached(data);
  for (std::size_t n = data.nodes.size(); n-- > 0;) reached.visit(data.nodes[n]);
}

}  // namespace kerf
