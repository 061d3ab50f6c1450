// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/passes/attention_masks.h"

#include <algorithm>
#include <optional>

#include "kerf/graph/arguments.h"
#include "kerf/graph/passes/attention.h"
#include "kerf/graph/passes/remove_unused.h"

namespace kerf {
namespace {

bool is_causal(const Node& node) {
  const Argument* const given = find_argument(node, attention::kIsCausal, "is_causal");
  const auto* const flag = given == nullptr ? nullptr : given->find<bool>();
  return given != nullptr && (flag == nullptr || *flag);
}

// Could the mask be left out without a change of the result's shape?
bool fits(const Sizes& mask, const Sizes& scores) {
  if (mask.size() > scores.size()) return false;
  for (std::size_t i = 1; i <= mask.size(); ++i) {
    const Expr& size = mask[mask.size() - i];
    if (!(size == Expr(1)) && !(size == scores[scores.size() - i])) return false;
  }
  return true;
}

std::optional<MaskedAttention> find_mask(const Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  if (node.op != "aten.scaled_dot_product_attention.default" || is_causal(node)) return {};
  const ValueId* const query = find_tensor(node, attention::kQuery, "query");
  const ValueId* const key = find_tensor(node, attention::kKey, "key");
  const ValueId* const mask = find_tensor(node, attention::kMask, "attn_mask");
  if (query == nullptr || key == nullptr || mask == nullptr) return {};
  std::vector<Expr> scores = graph.value(*query).shape.list();
  const std::vector<Expr>& keys = graph.value(*key).shape.list();
  if (scores.size() < 2 || keys.size() < 2) return {};
  scores.back() = keys[keys.size() - 2];
  if (!fits(graph.value(*mask).shape, scores)) return {};
  return MaskedAttention{id, *mask, scores[scores.size() - 2], scores.back()};
}

void leave_out(Node& node, MaskKind kind) {
  const auto named = [&](std::string_view name) {
    return std::find_if(node.args.begin(), node.args.end(),
                        [&](const NamedArgument& given) { return given.name == name; });
  };
  if (const auto mask = named("attn_mask"); mask != node.args.end()) {
    node.args.erase(mask);
  } else {
    node.args[attention::kMask].value = Argument{};
  }
  if (kind != MaskKind::causal) return;
  if (const auto flag = named("is_causal"); flag != node.args.end()) node.args.erase(flag);
  if (node.args.size() > attention::kIsCausal && node.args[attention::kIsCausal].name.empty()) {
    node.args[attention::kIsCausal].value = Argument{true};
  } else {
    node.args.push_back({"is_causal", Argument{true}});
  }
}

}  // namespace

std::vector<MaskedAttention> masked_attentions(const Graph& graph) {
  std::vector<MaskedAttention> found;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    if (auto attention = find_mask(graph, NodeId(n))) found.push_back(*std::move(attention));
  }
  return found;
}

Graph leave_out_masks(const Graph& graph, const std::vector<KnownMask>& masks) {
  GraphData data = graph.data();
  bool changed = false;
  for (const KnownMask& mask : masks) {
    if (mask.kind == MaskKind::any) continue;
    leave_out(data.nodes[mask.node.index()], mask.kind);
    changed = true;
  }
  return changed ? remove_unused(std::move(data)) : graph;
}

}  // namespace kerf
