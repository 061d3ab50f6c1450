// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/find_effects.h"

#include "kerf/graph/operator_effects.h"

namespace kerf {

void find_effects(Captured& captured) {
  for (Node& node : captured.data.nodes) {
    const auto op = captured.operators.find(node.op);
    if (op == captured.operators.end()) continue;
    node.written = written_values(op->second, node);
    node.may_alias = aliased_values(op->second, node);
    node.random = draws_numbers(op->second, node);
  }
}

}  // namespace kerf
