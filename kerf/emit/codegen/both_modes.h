// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// One code for training and evaluation, from two traces of a model.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf::codegen {

// What a graph that was traced in train mode does otherwise in eval mode.
struct ModeDifferences {
  std::vector<bool> only_training;  // by node: what evaluation does not do
  // Results of such nodes that others use, and what these use in eval mode in their place.
  std::map<ValueId, ValueId> instead;
  // By node and number of the argument: what stands there in eval mode, when it is something else.
  std::map<std::pair<NodeId, std::size_t>, Argument> in_eval;
  std::vector<Condition> conditions;  // of the eval trace
};

// Walks through both graphs at once. They are one code where every operator of the eval trace is in
// the train trace too, on the same values. Constants may differ (the flag of a batch norm, the
// probability of an attention's dropout), and the train trace may do more: dropout, copies to other
// strides, writes to buffers, and detours such as stochastic depth, which give another
// tensor than the one that evaluation goes on with. Throws Error(unsupported_operator) that names
// the first node for which that does not hold.
ModeDifferences compare_modes(const Graph& training, const Graph& eval);

// dropout(input, p, train), which is its input, or its input's memory, where it does not train.
bool is_dropout(const Node& node);

}  // namespace kerf::codegen
