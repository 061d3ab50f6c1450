// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/remove_needless_copies.h"

#include "kerf/graph/renumber.h"

namespace kerf {
namespace {

// By storage: is it changed by a call, or handed to the caller, who may change it?
std::vector<bool> storages_to_keep(const GraphData& data) {
  std::vector<bool> kept(data.storages.size(), false);
  const auto keep = [&](ValueId id) {
    const StorageId storage = data.values[id.index()].storage;
    if (storage.valid()) kept[storage.index()] = true;
  };
  for (const GraphOutput& output : data.outputs) for_each_value(output.leaf, keep);
  for (const Node& node : data.nodes) {
    for (const ValueId id : node.written) keep(id);
  }
  return kept;
}

// What is copied, where the copy is not needed; nullptr otherwise.
const ValueId* find_copied(const GraphData& data, const std::vector<bool>& needed,
                           const Node& node) {
  if (node.op != "aten.lift_fresh_copy.default" || node.args.empty()) return nullptr;
  if (node.outputs.size() != 1 || !node.outputs[0].valid()) return nullptr;
  const StorageId storage = data.values[node.outputs[0].index()].storage;
  if (storage.valid() && needed[storage.index()]) return nullptr;
  return node.args[0].value.find<ValueId>();
}

}  // namespace

void remove_needless_copies(Captured& captured) {
  const std::vector<bool> needed = storages_to_keep(captured.data);
  std::vector<ValueId> stands_for = identity_map(captured.data);
  std::vector<bool> kept;
  for (Node& node : captured.data.nodes) {
    map_uses(node, stands_for);
    const ValueId* const copied = find_copied(captured.data, needed, node);
    if (copied != nullptr) stands_for[node.outputs[0].index()] = *copied;
    kept.push_back(copied == nullptr);
  }
  map_outputs(captured.data, stands_for);
  keep_nodes(captured, kept);
}

}  // namespace kerf
