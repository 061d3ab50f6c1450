// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// Which gradients a training step makes of a graph's values: autograd's view of it, from
// `requires_grad` and `grad_enabled` alone. Linear time; the graph must outlive it.
class Gradients {
 public:
  explicit Gradients(const Graph& graph);

  // Has this node a backward?
  bool asked(NodeId node) const;
  // Does the backward of `node`, which has one, make the gradient of its input `value`?
  bool wanted(NodeId node, ValueId value) const;
  // Is it a weight, or made of weights and constants alone (a transposed or cast weight)?
  bool of_weight(ValueId value) const { return of_weight_[value.index()]; }
  // Does another node of the backward, which runs in reverse order, make a gradient of `value`
  // before this one does? Then the two are added.
  bool added(NodeId node, ValueId value) const { return last_reader_[value.index()] != node; }

 private:
  bool requires_grad(ValueId value) const;
  bool any_requires_grad(NodeId node) const;

  const Graph& graph_;
  std::vector<bool> of_weight_;
  std::vector<NodeId> last_reader_;  // of those with a backward
};

}  // namespace kerf
