// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What an operator computes and moves, forward and backward, from its shapes. Private to profile/.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/profile/formula/gradients.h"

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

// One kernel of a node's backward. Gradients of weights can wait for the gradients that earlier
// stages wait for, so they are told apart.
struct GradientCost {
  OpCost cost;
  bool of_weights = false;
};

struct BackwardCost {
  std::vector<GradientCost> kernels;  // none: no gradient is asked for, or it costs nothing
  bool known = true;                  // false: twice the bytes that the forward touches

  double macs(bool of_weights) const;
  double flops(bool of_weights) const;
  Bytes moved(bool of_weights) const;
};

// The size of a call and where it runs.
struct Setting {
  std::int64_t batch = 0;
  bool host = true;  // kernels of the host differ from those of accelerators
};

// nullopt: no formula for this operator (or its arguments are not what the formula expects).
std::optional<OpCost> op_cost(const Graph& graph, NodeId node, const Setting& setting);

// `forward` is what op_cost says of the node; `gradients` must be those of the graph.
BackwardCost backward_cost(const Graph& graph, NodeId node, const Setting& setting,
                           const std::optional<OpCost>& forward, const Gradients& gradients);

// Reads every tensor input and writes every output: what an operator moves at least.
Bytes bytes_touched(const Graph& graph, NodeId node, std::int64_t batch);

}  // namespace kerf
