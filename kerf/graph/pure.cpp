// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/pure.h"

#include <algorithm>

namespace kerf {

bool leaves_nothing(const Graph& graph) {
  const auto changes = [&](ValueId id) {
    const StorageId storage = graph.value(id).storage;
    return storage.valid() && graph.is_written(storage);
  };
  return std::none_of(graph.inputs().begin(), graph.inputs().end(),
                      [&](const GraphInput& input) { return changes(input.value); }) &&
         std::none_of(graph.weights().begin(), graph.weights().end(),
                      [&](const Weight& weight) { return changes(weight.value); });
}

bool is_pure(const Graph& graph) {
  return leaves_nothing(graph) &&
         std::none_of(graph.nodes().begin(), graph.nodes().end(),
                      [](const Node& node) { return node.random || node.op == "opaque"; });
}

}  // namespace kerf
