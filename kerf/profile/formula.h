// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The formula table: what an operator computes and moves, from its shapes. Private to profile/.
#pragma once

#include <cstdint>
#include <optional>

#include "kerf/graph/graph.h"

namespace kerf {

// Which of a device's rates applies.
enum class Unit : std::uint8_t {
  none,    // nothing is computed or moved: views, sizes
  vector,  // element by element
  matrix,  // products and convolutions
};

struct OpCost {
  Unit unit = Unit::vector;
  double flops = 0;
  double macs = 0;
  Bytes moved;
};

// nullopt: no formula for this operator (or its arguments are not what the formula expects).
std::optional<OpCost> op_cost(const Graph& graph, NodeId node, std::int64_t batch);

// Reads every tensor input and writes every output: what an operator moves at least.
Bytes bytes_touched(const Graph& graph, NodeId node, std::int64_t batch);

}  // namespace kerf
