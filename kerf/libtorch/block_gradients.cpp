// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/block_gradients.h"

#include <map>

namespace kerf {

BlockGradients::BlockGradients(const Graph& graph, const WeightStore& weights) {
  std::map<std::size_t, NodeId> users;  // by weight: the last
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    const bool is_block = graph.node(NodeId{n}).op == "opaque";
    for (const ValueId id : graph.inputs_of(NodeId{n})) {
      const Value& value = graph.value(id);
      if (value.origin != Origin::weight) continue;
      if (is_block || graph.is_written(value.storage)) users[value.position] = NodeId{n};
    }
  }
  for (const auto& [weight, user] : users) {
    const at::Tensor& tensor = weights.original(weight);
    if (!tensor.requires_grad()) continue;
    kept_.push_back({{weight, user, tensor}, tensor.grad()});
    tensor.mutable_grad() = at::Tensor();
  }
}

std::vector<WeightLeaf> BlockGradients::take() {
  std::vector<WeightLeaf> out;
  for (auto& [own, before] : kept_) {
    if (own.tensor.grad().defined()) {
      out.push_back({own.weight, own.user, own.tensor.detach()});
      out.back().tensor.mutable_grad() = own.tensor.grad();
    }
    own.tensor.mutable_grad() = before;
  }
  kept_.clear();
  return out;
}

}  // namespace kerf
