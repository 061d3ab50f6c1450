// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/has_backward.h"

#include <algorithm>

namespace kerf {

bool has_backward(const Graph& graph, NodeId node) {
  if (!graph.node(node).grad_enabled) return false;
  const std::vector<ValueId>& outputs = graph.node(node).outputs;
  return std::any_of(outputs.begin(), outputs.end(),
                     [&](ValueId id) { return id.valid() && graph.value(id).requires_grad; });
}

}  // namespace kerf
