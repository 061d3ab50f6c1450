// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/pure.h"

#include <algorithm>

namespace kerf {

bool is_pure(const Graph& graph) {
  const auto changes = [&](ValueId id) {
    const StorageId storage = graph.value(id).storage;
    return storage.valid() && graph.is_written(storage);
  };
  return std::none_of(graph.nodes().begin(), graph.nodes().end(),
                      [](const Node& node) { return node.random || node.op == "opaque"; }) &&
         std::none_of(graph.inputs().begin(), graph.inputs().end(),
                      [&](const GraphInput& input) { return changes(input.value); }) &&
         std::none_of(graph.weights().begin(), graph.weights().end(),
                      [&](const Weight& weight) { return changes(weight.value); });
}

}  // namespace kerf
