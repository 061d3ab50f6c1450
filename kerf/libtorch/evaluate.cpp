// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/evaluate.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kerf/base/error.h"
#include "kerf/libtorch/convert.h"
#include "kerf/libtorch/kernel.h"

namespace kerf {
namespace {

std::vector<std::int64_t> sizes_at(const Sizes& shape, std::int64_t batch) {
  std::vector<std::int64_t> sizes;
  for (const Expr& size : shape) sizes.push_back(size.eval(batch));
  return sizes;
}

at::Tensor literal(const Value& value, const std::string& data) {
  const auto options = at::TensorOptions(to_scalar_type(value.dtype));
  // from_blob only reads here: the copy is what is kept.
  void* const bytes = const_cast<char*>(data.data());  // NOLINT
  return at::from_blob(bytes, sizes_at(value.shape, 1), options).clone();
}

// Something of the right form, for operators that look at nothing else.
at::Tensor stand_in(const Value& value, std::int64_t batch) {
  const auto options = at::TensorOptions(to_scalar_type(value.dtype));
  return at::empty(at::IntArrayRef(), options).expand(sizes_at(value.shape, batch));
}

void check_result(const Graph& graph, NodeId node, const c10::IValue& found, std::int64_t batch) {
  const Value& value = graph.value(graph.node(node).outputs.front());
  if (found.isTensor() && found.toTensor().sizes() == sizes_at(value.shape, batch) &&
      found.toTensor().scalar_type() == to_scalar_type(value.dtype)) {
    return;
  }
  throw Error(ErrorKind::run_failed,
              fmt::format("[libtorch.evaluate] {} gave {} at batch {}; the graph says {}; trace "
                          "the model again",
                          graph.describe(node), describe(found), batch, describe(value)));
}

}  // namespace

FixedEvaluator::FixedEvaluator(const Graph& graph) : graph_(graph), fixed_(fixed_values(graph)) {}

std::vector<NodeId> FixedEvaluator::makers(ValueId id) const {
  std::vector<bool> wanted(graph_.num_nodes(), false);
  std::vector<ValueId> open{id};
  while (!open.empty()) {
    const Value& value = graph_.value(open.back());
    const bool known = fixed(open.back()) != Fixed::no;
    open.pop_back();
    if (!known || value.origin != Origin::node || wanted[value.producer.index()]) continue;
    wanted[value.producer.index()] = true;
    if (ignores_elements(graph_.node(value.producer))) continue;
    const std::span<const ValueId> inputs = graph_.inputs_of(value.producer);
    open.insert(open.end(), inputs.begin(), inputs.end());
  }
  std::vector<NodeId> nodes;
  for (std::size_t n = 0; n < wanted.size(); ++n) {
    if (wanted[n]) nodes.push_back(NodeId(n));
  }
  return nodes;
}

Bytes FixedEvaluator::largest(ValueId id, std::int64_t batch) const {
  Bytes most = graph_.value(id).bytes(batch);
  for (const NodeId node : makers(id)) {
    most = std::max(most, graph_.value(graph_.node(node).outputs.front()).bytes(batch));
  }
  return most;
}

at::Tensor FixedEvaluator::at_batch(ValueId id, std::int64_t batch) const {
  // Whatever the caller has on (modes written in Python, autocast) is no part of the model.
  const c10::impl::ExcludeDispatchKeyGuard no_modes(
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}) |
      c10::autocast_dispatch_keyset);
  const std::vector<NodeId> nodes = makers(id);
  std::vector<int> slot_of(graph_.num_values(), -1);
  Slots slots;
  std::map<ValueId, NodeId> last_user;  // looked up only
  const auto add_slot = [&](ValueId value) {
    slot_of[value.index()] = static_cast<int>(slots.size());
    slots.emplace_back();
  };
  for (const NodeId node : nodes) {
    for (const ValueId input : graph_.inputs_of(node)) {
      last_user[input] = node;
      if (slot_of[input.index()] >= 0) continue;
      add_slot(input);
      const Value& value = graph_.value(input);
      const bool is_literal = fixed(input) != Fixed::no && value.origin == Origin::weight;
      slots.back() = is_literal ? literal(value, graph_.weights()[value.position].data)
                                : stand_in(value, batch);
    }
    add_slot(graph_.node(node).outputs.front());
  }
  if (slot_of[id.index()] < 0) {  // a constant itself
    return literal(graph_.value(id), graph_.weights()[graph_.value(id).position].data);
  }
  for (const NodeId node : nodes) {
    std::vector<ValueId> dead;
    for (const ValueId input : graph_.inputs_of(node)) {
      if (last_user[input] == node && input != id) dead.push_back(input);
    }
    Kernel(graph_, node, slot_of, dead, c10::Device(c10::DeviceType::CPU), {})
        .run(graph_, slots, batch, batch);
    const ValueId output = graph_.node(node).outputs.front();
    check_result(graph_, node, slots[static_cast<std::size_t>(slot_of[output.index()])], batch);
  }
  return slots[static_cast<std::size_t>(slot_of[id.index()])].toTensor();
}

}  // namespace kerf
