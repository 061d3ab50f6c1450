// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Conventions. A multiply-add is two flops. Products and convolutions are counted exactly from
// their shapes; element-wise operators at a fixed number of flops an element (an exponential is a
// polynomial of about ten); indexing and copies at none, by the bytes they move. Bytes assume that
// each tensor is read or written once, which blocked kernels nearly reach. A backward is the list
// of kernels that autograd starts for it; gradients of one value from several nodes are added by
// all of them but the first to run.
#include "kerf/profile/formula/op_cost.h"

#include <algorithm>

#include "kerf/graph/operator.h"
#include "kerf/profile/formula/table.h"

namespace kerf {
namespace {

using formula::Backward;
using formula::Call;
using formula::Formula;

// All it returns is memory it was given, and it changes none of it. Told from storages rather than
// from names: `reshape` is a view or a copy, as the case may be.
bool is_view(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (node.op == "opaque" || !node.written.empty()) return false;
  if (node.op.starts_with(kPythonFunction)) return false;  // its backward is anything
  bool any = false;
  for (const ValueId output : node.outputs) {
    if (!output.valid() || graph.value(output).scalar) continue;
    any = true;
    const StorageId storage = graph.value(output).storage;
    const auto inputs = graph.inputs_of(id);
    const bool given = std::any_of(inputs.begin(), inputs.end(), [&](ValueId input) {
      return !graph.value(input).scalar && graph.value(input).storage == storage;
    });
    if (!given) return false;
  }
  return any;
}

// Integer arithmetic on sizes and the like: no tensor in, none out.
bool touches_no_tensor(const Graph& graph, NodeId id) {
  const auto is_tensor = [&](ValueId value) { return value.valid() && !graph.value(value).scalar; };
  const auto inputs = graph.inputs_of(id);
  const auto& outputs = graph.node(id).outputs;
  return graph.node(id).op != "opaque" && std::none_of(inputs.begin(), inputs.end(), is_tensor) &&
         std::none_of(outputs.begin(), outputs.end(), is_tensor);
}

// Nothing is known of it but what it touches, which its backward does twice: it reads what the
// forward read and wrote, and as much again for gradients. Shared by inputs and weights.
void add_unknown(Backward& backward, BackwardCost& cost) {
  const std::vector<ValueId> wanted = backward.wanted();
  cost.known = false;
  if (wanted.empty()) return;
  const auto weight =
      std::find_if(wanted.begin(), wanted.end(), [&](ValueId v) { return backward.of_weight(v); });
  const auto input =
      std::find_if(wanted.begin(), wanted.end(), [&](ValueId v) { return !backward.of_weight(v); });
  const bool both = weight != wanted.end() && input != wanted.end();
  const Bytes touched = backward.call().touched();
  for (const auto found : {input, weight}) {
    if (found != wanted.end()) backward.add(*found, 0, both ? touched : touched * 2);
  }
}

void add_sums(Backward& backward, const Gradients& gradients) {
  for (const ValueId input : backward.wanted()) {
    if (!gradients.added(backward.call().id(), input)) continue;
    backward.add(input, backward.call().elements(input), backward.call().bytes(input) * 3);
  }
}

template <class Get>
auto total(const BackwardCost& cost, bool of_weights, Get&& get) {
  decltype(get(OpCost{})) sum{};
  for (const GradientCost& kernel : cost.kernels) {
    if (kernel.of_weights == of_weights) sum += get(kernel.cost);
  }
  return sum;
}

}  // namespace

double BackwardCost::macs(bool of_weights) const {
  return total(*this, of_weights, [](const OpCost& cost) { return cost.macs; });
}

double BackwardCost::flops(bool of_weights) const {
  return total(*this, of_weights, [](const OpCost& cost) { return cost.flops; });
}

Bytes BackwardCost::moved(bool of_weights) const {
  return total(*this, of_weights, [](const OpCost& cost) { return cost.moved; });
}

Bytes bytes_touched(const Graph& graph, NodeId node, std::int64_t batch) {
  Bytes sum;
  for (const ValueId id : graph.inputs_of(node)) {
    if (!graph.value(id).scalar) sum += graph.value(id).bytes(batch);
  }
  for (const ValueId id : graph.node(node).outputs) {
    if (id.valid() && !graph.value(id).scalar) sum += graph.value(id).bytes(batch);
  }
  return sum;
}

std::optional<OpCost> op_cost(const Graph& graph, NodeId node, const Setting& setting) {
  if (is_view(graph, node) || touches_no_tensor(graph, node)) {
    return OpCost{Unit::none, 0, 0, Bytes{0}};
  }
  const Formula* found = formula::table().find(graph.node(node).op);
  if (found == nullptr) return std::nullopt;
  return found->forward(Call(graph, node, setting));
}

BackwardCost backward_cost(const Graph& graph, NodeId node, const Setting& setting,
                           const std::optional<OpCost>& forward, const Gradients& gradients) {
  BackwardCost cost;
  if (!gradients.asked(node)) return cost;
  const Call call(graph, node, setting);
  const OpCost known = forward.value_or(OpCost{});
  Backward backward(call, known, gradients, cost);
  const Formula* found = formula::table().find(graph.node(node).op);
  if (!forward) {
    add_unknown(backward, cost);
  } else if (is_view(graph, node)) {
    if (found != nullptr) found->of_view(backward);
  } else if (found != nullptr) {
    found->backward(backward);
  }
  add_sums(backward, gradients);
  return cost;
}

}  // namespace kerf
