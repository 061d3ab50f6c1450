// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/batching.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "kerf/base/error.h"

namespace kerf {
namespace {

[[noreturn]] void refuse(const std::string& found, std::string_view remedy) {
  throw Error(ErrorKind::unsupported_operator,
              fmt::format("[runtime.batching] {}; expected results that are separate for each "
                          "sample; {}",
                          found, remedy));
}

// c * B exactly, with c > 0.
std::optional<std::int64_t> factor_of_batch(const Expr& size) {
  const std::int64_t at_one = size.eval(1);
  if (size.is_constant() || at_one <= 0 || !(size == Expr::linear(0, at_one))) return std::nullopt;
  return at_one;
}

std::vector<int> batch_dims_of(const Value& value) {
  std::vector<int> out;
  for (std::size_t d = 0; d < value.shape.size(); ++d) {
    if (!value.shape[d].is_constant()) out.push_back(static_cast<int>(d));
  }
  return out;
}

// Nodes whose result depends on the samples, not merely on how many there are.
std::vector<bool> sample_dependent(const Graph& graph) {
  std::vector<bool> out(graph.num_values(), false);
  for (const GraphInput& input : graph.inputs()) {
    out[input.value.index()] = graph.value(input.value).depends_on_batch();
  }
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    const auto inputs = graph.inputs_of(NodeId(n));
    if (std::none_of(inputs.begin(), inputs.end(), [&](ValueId id) { return out[id.index()]; })) {
      continue;
    }
    for (const ValueId id : graph.node(NodeId(n)).outputs) {
      if (id.valid()) out[id.index()] = true;
    }
    // What is written takes on the nature of what is written into it, all its names included.
    for (const ValueId id : graph.node(NodeId(n)).written) {
      const StorageId storage = graph.value(id).storage;
      for (std::size_t v = 0; v < graph.num_values(); ++v) {
        if (graph.value(ValueId(v)).storage == storage) out[v] = true;
      }
    }
  }
  return out;
}

std::string_view base_name(std::string_view op) {
  const std::size_t first = op.find('.');
  if (first == std::string_view::npos) return op;
  op.remove_prefix(first + 1);
  return op.substr(0, op.find('.'));
}

bool is_reshape(std::string_view op) {
  static constexpr std::array<std::string_view, 5> kNames{"view", "reshape", "flatten",
                                                          "_unsafe_view", "unflatten"};
  return std::find(kNames.begin(), kNames.end(), base_name(op)) != kNames.end();
}

// Operators that leave every dimension they keep in its place and order.
bool keeps_rows(std::string_view op) {
  static constexpr std::array<std::string_view, 31> kNames{
      "linear",  "layer_norm",  "relu",     "relu_", "gelu",     "silu",       "tanh",  "sigmoid",
      "add",     "sub",         "mul",      "div",   "add_",     "mul_",       "neg",   "exp",
      "softmax", "log_softmax", "dropout",  "to",    "_to_copy", "contiguous", "clone", "mm",
      "addmm",   "matmul",      "rms_norm", "slice", "pow",      "detach",     "alias"};
  return std::find(kNames.begin(), kNames.end(), base_name(op)) != kNames.end();
}

// Does dimension `dim` of `id`, of size c*B, run through the samples first? Then micro-batch
// results stand one after the other in it. Follows the value back to the reshape that merged the
// dimensions; what it cannot follow it does not promise.
bool batch_is_outermost(const Graph& graph, ValueId id, int dim) {
  for (;;) {
    const Value& value = graph.value(id);
    if (value.origin != Origin::node) return false;
    const Node& node = graph.node(value.producer);
    const auto inputs = graph.inputs_of(value.producer);
    const Expr& size = value.shape[static_cast<std::size_t>(dim)];
    if (is_reshape(node.op)) {
      const Value& source = graph.value(inputs[0]);
      // Dimensions in front of the merged one must be the same on both sides.
      Expr before = 1;
      for (int d = 0; d < dim; ++d) before = before * value.shape[static_cast<std::size_t>(d)];
      Expr skipped = 1;
      std::size_t d = 0;
      while (d < source.shape.size() && !(skipped == before)) skipped = skipped * source.shape[d++];
      while (d < source.shape.size() && source.shape[d] == Expr(1)) ++d;
      if (d == source.shape.size() || !(skipped == before)) return false;
      if (source.shape[d] == Expr::batch()) return true;
      if (!(source.shape[d] == size)) return false;
      id = inputs[0];
      dim = static_cast<int>(d);
      continue;
    }
    if (!keeps_rows(node.op)) return false;
    const auto same = std::find_if(inputs.begin(), inputs.end(), [&](ValueId input) {
      const Value& source = graph.value(input);
      return source.shape.size() == value.shape.size() &&
             source.shape[static_cast<std::size_t>(dim)] == size;
    });
    if (same == inputs.end()) return false;
    id = *same;
  }
}

OutputRule reduction(const std::string& path, const std::string& how) {
  if (how == "mean") return {Join::mean, {}};
  if (how == "sum") return {Join::sum, {}};
  if (how == "first") return {Join::whole, {}};
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[runtime.batching] reduce says '{}' for output '{}'; expected 'mean', "
                          "'sum' or 'first'",
                          how, path));
}

OutputRule rule_of(const Graph& graph, const GraphOutput& output, ValueId id,
                   const std::vector<bool>& dependent,
                   const std::map<std::string, std::string>& reduce) {
  const Value& value = graph.value(id);
  if (const auto said = reduce.find(output.path); said != reduce.end()) {
    return reduction(output.path, said->second);
  }
  const std::vector<int> dims = batch_dims_of(value);
  constexpr std::string_view kOne = "run with n_microbatches=1";
  if (dims.empty()) {
    if (!dependent[id.index()]) return {};
    refuse(fmt::format("output '{}' has no batch dimension but is computed from the samples",
                       output.path),
           fmt::format("say how to put it together, reduce={{\"{}\": \"mean\"}}, or {}",
                       output.path, kOne));
  }
  if (dims.size() > 1) {
    refuse(fmt::format("output '{}' has the batch in dimensions {} and {}: the model mixes samples",
                       output.path, dims[0], dims[1]),
           kOne);
  }
  const Expr& size = value.shape[static_cast<std::size_t>(dims[0])];
  const auto factor = factor_of_batch(size);
  if (!factor) {
    refuse(fmt::format("output '{}' has size {} in dimension {}", output.path, size.str(), dims[0]),
           kOne);
  }
  if (*factor != 1 && !batch_is_outermost(graph, id, dims[0])) {
    refuse(
        fmt::format("output '{}' has size {} in dimension {}, and samples may not stand one after "
                    "the other in it",
                    output.path, size.str(), dims[0]),
        kOne);
  }
  return {Join::concatenate, {dims[0], *factor}};
}

}  // namespace

std::vector<std::int64_t> micro_batch_sizes(std::int64_t batch, int n_microbatches) {
  const std::int64_t count = std::min<std::int64_t>(n_microbatches, batch);
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back((batch + count - 1 - i) / count);
  return out;
}

std::vector<BatchDim> input_dims(const Graph& graph) {
  std::vector<BatchDim> out;
  for (const GraphInput& input : graph.inputs()) {
    const Value& value = graph.value(input.value);
    const std::vector<int> dims = batch_dims_of(value);
    if (dims.empty()) {
      out.push_back({});
      continue;
    }
    const auto factor = factor_of_batch(value.shape[static_cast<std::size_t>(dims[0])]);
    if (dims.size() > 1 || !factor) {
      throw Error(
          ErrorKind::unsupported_operator,
          fmt::format("[runtime.batching] input '{}' holds the batch in {} dimensions or not "
                      "as a multiple of B; expected one dimension; give batch_dims= to trace",
                      input.path, dims.size()));
    }
    out.push_back({dims[0], *factor});
  }
  return out;
}

std::vector<OutputRule> output_rules(const Graph& graph,
                                     const std::map<std::string, std::string>& reduce) {
  const std::vector<bool> dependent = sample_dependent(graph);
  for (const auto& [path, how] : reduce) {
    if (std::none_of(graph.outputs().begin(), graph.outputs().end(),
                     [&](const GraphOutput& output) { return output.path == path; })) {
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("[runtime.batching] reduce names output '{}'; the model has no such "
                              "output; use one of its names",
                              path));
    }
  }
  std::vector<OutputRule> out;
  for (const GraphOutput& output : graph.outputs()) {
    const auto* id = output.leaf.find<ValueId>();
    out.push_back(id == nullptr ? OutputRule{} : rule_of(graph, output, *id, dependent, reduce));
  }
  return out;
}

void check_state_allows_micro_batches(const Graph& graph) {
  if (graph.data().training) return;  // statistics of normalisation: one update a micro-batch
  const std::vector<bool> dependent = sample_dependent(graph);
  for (const Weight& weight : graph.weights()) {
    const Value& value = graph.value(weight.value);
    if (!value.storage.valid() || !graph.is_written(value.storage)) continue;
    if (!dependent[weight.value.index()]) continue;
    refuse(fmt::format("the model writes values of the samples into '{}'", weight.names[0]),
           "run with n_microbatches=1");
  }
}

}  // namespace kerf
