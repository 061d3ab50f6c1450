// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/captured.h"

#include <utility>

namespace kerf {

void keep_nodes(Captured& captured, const std::vector<bool>& kept) {
  std::vector<Node>& nodes = captured.data.nodes;
  std::size_t count = 0;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (!kept[n]) continue;
    if (n != count) nodes[count] = std::move(nodes[n]);
    captured.numbers[count++] = captured.numbers[n];
  }
  nodes.resize(count);
  captured.numbers.resize(count);
}

}  // namespace kerf
