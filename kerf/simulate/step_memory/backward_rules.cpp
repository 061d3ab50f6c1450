// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/step_memory/backward_rules.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "kerf/graph/arguments.h"
#include "kerf/graph/batch_flow/call.h"
#include "kerf/simulate/step_memory/convolution_workspaces.h"

namespace kerf {
namespace {

// Their gradients are views of the result's.
bool gives_views(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {
      "alias",   "cat",        "chunk_cat",    "clone",   "concat",    "contiguous", "expand_as",
      "flatten", "lift_fresh", "movedim",      "numpy_T", "permute",   "reshape",    "reshape_as",
      "squeeze", "stack",      "swapaxes",     "t",       "transpose", "unflatten",  "unsqueeze",
      "view",    "view_as",    "_unsafe_view", "T",       "mT",
  };
  return kNames.contains(name);
}

// Sums, whose gradient is the result's itself where no operand was spread.
bool is_sum(std::string_view name) { return name == "add" || name == "sub" || name == "expand"; }

bool is_product(std::string_view name) {
  static const std::unordered_set<std::string_view> kNames = {"linear", "matmul",  "mm",     "bmm",
                                                              "addmm",  "baddbmm", "einsum", "mv"};
  return kNames.contains(name);
}

bool has_shape_of(const Value& a, const Value& b, std::int64_t batch) {
  if (a.shape.size() != b.shape.size()) return false;
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    if (a.shape[d].eval(batch) != b.shape[d].eval(batch)) return false;
  }
  return true;
}

}  // namespace

bool passes_gradient(const Graph& graph, NodeId id, ValueId argument, std::int64_t batch) {
  const Node& node = graph.node(id);
  const std::string_view name = operator_name(node.op);
  const Value& in = graph.value(argument);
  if (name == "to" || name == "type_as" || name == "_to_copy") {
    return node.outputs.front().valid() && graph.value(node.outputs.front()).dtype == in.dtype;
  }
  if (gives_views(name)) return true;
  if (!is_sum(name) || !node.outputs.front().valid()) return false;
  const Value& out = graph.value(node.outputs.front());
  const ValueId* const second = find_tensor(node, 1, "other");
  if (name == "sub" && second != nullptr && *second == argument) return false;  // negated
  return out.dtype == in.dtype && has_shape_of(in, out, batch);
}

Bytes forward_workspace(const Graph& graph, NodeId id, std::int64_t batch) {
  const std::optional<Convolution> c = find_convolution(graph, id, batch);
  return c ? result_workspace(*c) : Bytes{};
}

Bytes reduction_buffer(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kVector = 4;               // columns that a thread adds up at once
  constexpr std::int64_t kThreads = 512 / kVector;  // of a block
  constexpr std::int64_t kWarp = 32;
  constexpr std::int64_t kMostEach = 256;  // rows a thread takes before blocks share
  constexpr std::int64_t kLeastEach = 16;
  if (columns % kVector != 0) return {};
  const auto power_below = [](std::int64_t n) {
    return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n)));
  };
  const std::int64_t across = std::min(power_below(columns / kVector), kThreads);
  const std::int64_t down = std::min(power_below(rows), kThreads);
  const std::int64_t height = std::min(down, kThreads / std::min(across, kWarp));
  const std::int64_t width = std::min(across, kThreads / height);
  if (rows < height * kLeastEach && rows < kMostEach) return {};
  const std::int64_t each = (rows + height - 1) / height;
  if (each < kMostEach) return {};
  const std::int64_t blocks = (each + kLeastEach - 1) / kLeastEach;
  return Bytes{4 * columns * blocks * width * kVector};
}

namespace {

// grad * (exponent * x^(exponent - 1)): the power and its multiple, beside the result.
Workspaces power_factors(const Graph& graph, NodeId id, ValueId argument, std::int64_t batch) {
  const ValueId* const base = find_tensor(graph.node(id), 0, "self");
  if (base == nullptr || *base != argument) return {};
  return {graph.value(argument).bytes(batch), graph.value(argument).bytes(batch)};
}

// Fused attention first adds up result x gradient of every row, in single precision: the product,
// its sums, and the sums laid out anew (mem_efficient and flash kernels: attention_backward.cu).
Workspaces attention_sums(const Graph& graph, NodeId id, ValueId argument, std::int64_t batch) {
  const ValueId* const query = find_tensor(graph.node(id), 0, "query");
  const Value& out = graph.value(graph.node(id).outputs.front());
  if (query == nullptr || *query != argument || out.shape.empty()) return {};
  const std::int64_t elements = out.bytes(batch).count / element_size(out.dtype);
  const std::int64_t rows =
      elements / std::max<std::int64_t>(out.shape[out.shape.size() - 1].eval(batch), 1);
  return {Bytes{4 * elements}, Bytes{4 * rows}, Bytes{4 * rows}};
}

}  // namespace

Workspaces gradient_workspaces(const Graph& graph, NodeId id, ValueId argument,
                               std::int64_t batch) {
  const std::string_view name = operator_name(graph.node(id).op);
  if (!graph.node(id).outputs.front().valid()) return {};
  if (name == "pow") return power_factors(graph, id, argument, batch);
  if (name == "scaled_dot_product_attention") return attention_sums(graph, id, argument, batch);
  const std::optional<Convolution> c = find_convolution(graph, id, batch);
  if (!c) return {};
  if (argument == c->kernel) return {weight_gradient_workspace(*c)};
  if (graph.value(argument).shape.size() <= 1) return {};  // a bias
  return {input_gradient_workspace(*c)};
}

// Gradients of operands that were spread are sums. What is added up is the gradient of the result
// itself, or, of a factor, a tensor that is made for it.
Workspaces sum_workspaces(const Graph& graph, NodeId id, ValueId argument, std::int64_t batch) {
  const Node& node = graph.node(id);
  const std::string_view name = operator_name(node.op);
  const bool is_factor = name == "mul" || name == "div";
  const bool spreads = is_factor || name == "add" || name == "sub" || name == "addmm";
  const ValueId* const bias = name == "linear" ? find_tensor(node, 2, "bias") : nullptr;
  if (!spreads && (bias == nullptr || *bias != argument)) return {};
  const Value& in = graph.value(argument);
  const ValueId result = node.outputs.front();
  if (!result.valid()) return {};
  const Value& out = graph.value(result);
  if (has_shape_of(in, out, batch)) return {};
  Workspaces made;
  if (is_factor) made.push_back(out.bytes(batch));
  if (in.shape.size() != 1 || out.shape.empty()) return made;
  const std::int64_t columns = in.shape[0].eval(batch);
  const std::int64_t elements = out.bytes(batch).count / element_size(out.dtype);
  if (columns > 1 && elements > columns) {
    made.push_back(reduction_buffer(elements / columns, columns));
  }
  return made;
}

bool uses_matrix_library(const Graph& graph, NodeId id) {
  return is_product(operator_name(graph.node(id).op));
}

}  // namespace kerf
