// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/formula/gradients.h"

#include <algorithm>

namespace kerf {

Gradients::Gradients(const Graph& graph)
    : graph_(graph), of_weight_(graph.num_values()), last_reader_(graph.num_values()) {
  for (const Weight& weight : graph.weights()) of_weight_[weight.value.index()] = true;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    const NodeId node{n};
    const auto inputs = graph.inputs_of(node);
    const bool constant =
        std::all_of(inputs.begin(), inputs.end(), [&](ValueId input) { return of_weight(input); });
    for (const ValueId output : graph.node(node).outputs) {
      if (output.valid()) of_weight_[output.index()] = constant;
    }
    for (const ValueId written : graph.node(node).written) {
      if (!constant) of_weight_[written.index()] = false;
    }
    if (!asked(node)) continue;
    for (const ValueId input : inputs) last_reader_[input.index()] = node;
  }
}

bool Gradients::requires_grad(ValueId value) const {
  return value.valid() && !graph_.value(value).scalar && graph_.value(value).requires_grad;
}

bool Gradients::asked(NodeId node) const {
  const std::vector<ValueId>& outputs = graph_.node(node).outputs;
  return graph_.node(node).grad_enabled &&
         std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) { return requires_grad(v); });
}

bool Gradients::any_requires_grad(NodeId node) const {
  const auto inputs = graph_.inputs_of(node);
  return std::any_of(inputs.begin(), inputs.end(), [&](ValueId v) { return requires_grad(v); });
}

bool Gradients::wanted(NodeId node, ValueId value) const {
  if (requires_grad(value)) return true;
  // A tensor made without a gradient gets one when a tensor with one is written into its memory,
  // and is read under its old name: some input of a node with a backward has a gradient.
  const Value& read = graph_.value(value);
  return !read.scalar && is_floating(read.dtype) && read.origin != Origin::weight &&
         !any_requires_grad(node);
}

}  // namespace kerf
