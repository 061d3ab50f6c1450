// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// What is proved about a value that no call can change.
enum class Fixed : std::uint8_t {
  no,        // an input or a weight decides it, or nobody knows
  repeated,  // at every batch what it is at batch one, repeated along the dimensions of size B
  counting,  // 0, 1, ... B-1 along its one dimension of size B
};

// By value of the graph. Follows the operators that masks and positions are made of; what is
// written in place, drawn at random, or made from tensors that the model holds (a user may change
// those) stays `no`. Exact for all batches, since it is proved from the operators, not tried.
std::vector<Fixed> fixed_values(const Graph& graph);

// Does the operator take nothing but shape, dtype and device from its first argument?
bool ignores_elements(const Node& node);

}  // namespace kerf
