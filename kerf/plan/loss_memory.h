// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/graph.h"

namespace kerf {

// What a loss takes that is computed from the model's results, which a plan cannot know: as much as
// cross entropy does. It is there before the backward of `node`, the last one that makes a result
// with a gradient.
struct LossMemory {
  NodeId
      node;  // invalid: no result has a gradient, or one is a single number, the model's own loss
  // Three times the results that have gradients: logarithms of probabilities, their gradients, and
  // the gradients of the results, with which backward begins.
  Bytes bytes;
};
LossMemory loss_memory(const Graph& graph, std::int64_t micro_batch);

}  // namespace kerf
