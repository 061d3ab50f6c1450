// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/loss_memory.h"

#include <algorithm>
#include <set>

namespace kerf {

LossMemory loss_memory(const Graph& graph, std::int64_t micro_batch) {
  LossMemory loss;
  bool own = false;
  std::set<ValueId> counted;
  for (const GraphOutput& output : graph.outputs()) {
    for_each_value(output.leaf, [&](ValueId id) {
      const Value& value = graph.value(id);
      if (value.scalar || value.origin != Origin::node || !value.requires_grad) return;
      if (!counted.insert(id).second) return;
      own = own || value.shape.empty();
      loss.bytes += value.bytes(micro_batch) * 3;
      if (!loss.node.valid() || loss.node < value.producer) loss.node = value.producer;
    });
  }
  return own ? LossMemory{} : loss;
}

}  // namespace kerf
