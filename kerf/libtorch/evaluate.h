// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kerf/graph/passes/fixed_values.h"

namespace kerf {

// Computes values that no call can change, on the host, one at a time.
class FixedEvaluator {
 public:
  // `graph` must outlive the evaluator.
  explicit FixedEvaluator(const Graph& graph);

  Fixed fixed(ValueId id) const { return fixed_[id.index()]; }

  // A value that is not Fixed::no, at a batch size. Throws Error(run_failed) when a node fails or
  // gives another shape or dtype than the graph says.
  at::Tensor at_batch(ValueId id, std::int64_t batch) const;

  // The most bytes that one tensor takes on the way to it.
  Bytes largest(ValueId id, std::int64_t batch) const;

 private:
  std::vector<NodeId> makers(ValueId id) const;  // in the order of the graph

  const Graph& graph_;
  std::vector<Fixed> fixed_;
};

}  // namespace kerf
