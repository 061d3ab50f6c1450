// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/graph/batch_flow/batch_flow.h"

namespace kerf {

// A tensor that the model keeps from one call to the next and that the graph writes.
struct StateWrite {
  std::size_t weight = 0;  // of Graph::weights
  NodeId by;               // the operator that decides it
  std::string_view why;    // of `by`: "changes it at every call"
};

// The tensors of the model that micro-batches may leave with other values than the whole batch
// does, one entry for each weight. Left out is what provably ends the same: memory that is
// overwritten with values that depend neither on the samples nor on what any call has left behind,
// and that is read only after that. So are, in train mode, the running statistics of batch norm
// (BatchFlow::batch_norms): other values, which the user is told of.
std::vector<StateWrite> unrepeatable_writes(const Graph& graph, const BatchFlow& flow);

// "buffer 'count'", "tensor 'cache'", "parameter 'weight'": with all names of a tied one.
std::string describe(const Weight& weight);

}  // namespace kerf
