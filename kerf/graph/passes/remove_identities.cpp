// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/remove_identities.h"

#include "kerf/graph/operator_effects.h"
#include "kerf/graph/renumber.h"

namespace kerf {
namespace {

// A leaf that autograd cut off is another tensor, so whether a gradient is wanted counts too.
bool is_same(const Value& a, const Value& b) {
  return a.storage.valid() && a.storage == b.storage && a.dtype == b.dtype && a.shape == b.shape &&
         a.strides == b.strides && a.offset == b.offset && a.requires_grad == b.requires_grad;
}

// The first argument, where the call gives back nothing else; nullptr otherwise.
const ValueId* find_given_back(const Captured& captured, const Node& node) {
  const auto op = captured.operators.find(node.op);
  if (op == captured.operators.end() || node.args.empty() || !node.args[0].name.empty()) {
    return nullptr;
  }
  const auto* const first = node.args[0].value.find<ValueId>();
  if (first == nullptr || node.outputs.size() != 1 || !node.outputs[0].valid()) return nullptr;
  if (gives_back_first(op->second, node)) return first;
  const std::vector<Value>& values = captured.data.values;
  const bool same = may_give_back_first(op->second, node) &&
                    is_same(values[node.outputs[0].index()], values[first->index()]);
  return same ? first : nullptr;
}

}  // namespace

void remove_identities(Captured& captured) {
  std::vector<ValueId> stands_for = identity_map(captured.data);
  std::vector<bool> kept;
  for (Node& node : captured.data.nodes) {
    // Asked of the argument as it was traced: what a dropout gave has a place of its own there.
    const ValueId* const given_back = find_given_back(captured, node);
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
