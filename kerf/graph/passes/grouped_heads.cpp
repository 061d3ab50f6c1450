// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/grouped_heads.h"

#include <algorithm>
#include <optional>

#include "kerf/graph/arguments.h"
#include "kerf/graph/passes/attention.h"
#include "kerf/graph/passes/remove_unused.h"

namespace kerf {
namespace {

constexpr std::size_t kHeads = 1;  // dimension of [batch, heads, length, width]
// Beyond this width kernels fall back to the one that keeps all scores in memory.
constexpr std::int64_t kMostWidth = 256;

// The node that made a value by an operator, from the value it took first.
const ValueId* find_source(const Graph& graph, ValueId id, std::string_view op) {
  const Value& value = graph.value(id);
  if (value.origin != Origin::node || graph.is_written(value.storage)) return nullptr;
  const Node& node = graph.node(value.producer);
  return node.op == op ? find_tensor(node, 0, "self") : nullptr;
}

// What reshape(expand(unsqueeze(x, 2), [b, h, n, s, d]), [b, h * n, s, d]) repeats: x.
std::optional<ValueId> find_repeated(const Graph& graph, ValueId id) {
  const ValueId* const expanded = find_source(graph, id, "aten.reshape.default");
  if (expanded == nullptr) return std::nullopt;
  const ValueId* const wider = find_source(graph, *expanded, "aten.expand.default");
  if (wider == nullptr) return std::nullopt;
  const ValueId* const source = find_source(graph, *wider, "aten.unsqueeze.default");
  if (source == nullptr || graph.is_written(graph.value(*source).storage)) return std::nullopt;

  const std::vector<Expr>& from = graph.value(*source).shape;
  const std::vector<Expr>& by = graph.value(*expanded).shape;
  if (from.size() != 4 || by.size() != 5) return std::nullopt;
  const bool one_more = graph.value(*wider).shape == Sizes{from[0], from[1], 1, from[2], from[3]};
  const bool repeated = by == std::vector<Expr>{from[0], from[1], by[2], from[2], from[3]};
  const bool joined = graph.value(id).shape == Sizes{from[0], from[1] * by[2], from[2], from[3]};
  return one_more && repeated && joined ? std::optional(*source) : std::nullopt;
}

bool is_plain(const Node& node) {
  const Argument* const mask = find_argument(node, attention::kMask, "attn_mask");
  const auto grouped = std::any_of(node.args.begin(), node.args.end(),
                                   [](const auto& given) { return given.name == "enable_gqa"; });
  return node.op == "aten.scaled_dot_product_attention.default" && !grouped &&
         (mask == nullptr || mask->is_none());
}

bool have_same_width(const Graph& graph, ValueId key, ValueId value) {
  const Expr& width = graph.value(key).shape[3];
  return width == graph.value(value).shape[3] && width.is_constant() &&
         width.constant() <= kMostWidth;
}

bool group(const Graph& graph, Node& node) {
  if (!is_plain(node)) return false;
  const ValueId* const query = find_tensor(node, attention::kQuery, "query");
  const ValueId* const key = find_tensor(node, attention::kKey, "key");
  const ValueId* const value = find_tensor(node, attention::kValue, "value");
  if (query == nullptr || key == nullptr || value == nullptr) return false;
  const auto keys = find_repeated(graph, *key);
  const auto values = find_repeated(graph, *value);
  if (!keys || !values || graph.value(*query).shape.size() != 4) return false;
  if (!(graph.value(*query).shape[kHeads] == graph.value(*key).shape[kHeads]) ||
      !(graph.value(*keys).shape[kHeads] == graph.value(*values).shape[kHeads]) ||
      !have_same_width(graph, *keys, *values)) {
    return false;
  }
  for (std::size_t i = 0; i < node.args.size(); ++i) {
    NamedArgument& given = node.args[i];
    if (given.name == "key" || (given.name.empty() && i == attention::kKey))
      given.value = Argument{*keys};
    if (given.name == "value" || (given.name.empty() && i == attention::kValue)) {
      given.value = Argument{*values};
    }
  }
  node.args.push_back({"enable_gqa", Argument{true}});
  return true;
}

}  // namespace

Graph group_heads(const Graph& graph) {
  GraphData data = graph.data();
  bool changed = false;
  for (Node& node : data.nodes) changed = group(graph, node) || changed;
  return changed ? remove_unused(std::move(data)) : graph;
}

}  // namespace kerf
