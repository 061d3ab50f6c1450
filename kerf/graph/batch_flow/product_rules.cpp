// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Products: mm, matmul, linear, einsum, attention. A dimension that is summed over is run over;
// every other one is carried.
#include <algorithm>
#include <string>

#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

// A letter a dimension, as einsum writes them.
struct Labelled {
  std::optional<ValueId> value;
  std::string_view labels;
};

std::vector<int> map_of(std::string_view labels, std::string_view result) {
  std::vector<int> to;
  for (const char label : labels) {
    const std::size_t at = result.find(label);
    to.push_back(at == std::string_view::npos ? kRunOver : static_cast<int>(at));
  }
  return to;
}

BatchState product(const Call& call, ValueId result, const std::vector<Labelled>& operands,
                   std::string_view labels) {
  std::vector<Operand> out;
  for (const Labelled& operand : operands) {
    if (!operand.value || call.rank(*operand.value) != static_cast<int>(operand.labels.size())) {
      return call.unknown(kNoRule);
    }
    out.push_back({*operand.value, map_of(operand.labels, labels)});
  }
  return carry(call, out, result);
}

BatchState mm_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  return product(call, result, {{call.tensor(0, "self"), "mk"}, {call.tensor(1, "mat2"), "kn"}},
                 "mn");
}

BatchState bmm_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  return product(call, result, {{call.tensor(0, "self"), "bmk"}, {call.tensor(1, "mat2"), "bkn"}},
                 "bmn");
}

BatchState mv_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  return product(call, result, {{call.tensor(0, "self"), "mk"}, {call.tensor(1, "vec"), "k"}}, "m");
}

BatchState dot_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  return product(call, result, {{call.tensor(0, "self"), "k"}, {call.tensor(1, "tensor"), "k"}},
                 "");
}

BatchState outer_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  return product(call, result, {{call.tensor(0, "self"), "m"}, {call.tensor(1, "vec2"), "n"}},
                 "mn");
}

// addmm, addmv, baddbmm: a sum that broadcasts, and a product.
BatchState added_product_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto sum = call.tensor(0, "self");
  const std::string_view name = operator_name(call.node().op);
  const bool many = name == "baddbmm";
  const auto a = call.tensor(1, many ? "batch1" : name == "addmv" ? "mat" : "mat1");
  const auto b = call.tensor(2, many ? "batch2" : name == "addmv" ? "vec" : "mat2");
  if (!sum || !a || !b || call.rank(*sum) > call.rank(result)) return call.unknown(kNoRule);
  const std::string_view labels = many ? "bmn" : name == "addmv" ? "m" : "mn";
  return carry(call,
               {{*sum, aligned(call.rank(*sum), call.rank(result))},
                {*a, map_of(many ? "bmk" : "mk", labels)},
                {*b, map_of(many              ? "bkn"
                            : name == "addmv" ? "k"
                                              : "kn",
                            labels)}},
               result);
}

// linear(x[..., k], w[n, k], b[n])
BatchState linear_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "input");
  const auto weight = call.tensor(1, "weight");
  if (!x || !weight || call.rank(*x) == 0 || call.rank(*weight) != 2 ||
      call.rank(result) != call.rank(*x)) {
    return call.unknown(kNoRule);
  }
  const int last = call.rank(result) - 1;
  std::vector<Operand> operands{{*x, straight(call.rank(*x))}, {*weight, {last, kRunOver}}};
  operands[0].to.back() = kRunOver;
  if (const auto bias = call.tensor(2, "bias")) operands.push_back({*bias, {last}});
  return carry(call, operands, result);
}

// matmul: matrices in the last two dimensions, the others broadcast; one dimension is a vector.
BatchState matmul_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto a = call.tensor(0, "self");
  const auto b = call.tensor(1, "other");
  if (!a || !b || call.rank(*a) == 0 || call.rank(*b) == 0) return call.unknown(kNoRule);
  const bool rows = call.rank(*a) > 1;
  const bool columns = call.rank(*b) > 1;
  const int lead = call.rank(result) - (rows ? 1 : 0) - (columns ? 1 : 0);
  const auto map = [&](int rank) {
    std::vector<int> to(static_cast<std::size_t>(rank), kRunOver);
    for (int d = 0; d + 2 < rank; ++d) to[static_cast<std::size_t>(d)] = d + lead - (rank - 2);
    return to;
  };
  std::vector<int> to_a = map(call.rank(*a));
  std::vector<int> to_b = map(call.rank(*b));
  if (rows) to_a[to_a.size() - 2] = lead;
  if (columns) to_b.back() = lead + (rows ? 1 : 0);
  return carry(call, {{*a, to_a}, {*b, to_b}}, result);
}

BatchState einsum_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const Argument* equation = call.argument(0, "equation");
  const auto* given = equation == nullptr ? nullptr : equation->find<std::string>();
  const auto tensors = call.tensors(1, "tensors");
  if (given == nullptr || !tensors) return call.unknown(kNoRule);
  std::string text = *given;
  std::erase(text, ' ');
  const std::size_t arrow = text.find("->");
  if (arrow == std::string::npos || text.find('.') != std::string::npos) {
    return call.unknown("has an equation without a rule");
  }
  const std::string_view out = std::string_view(text).substr(arrow + 2);
  std::string_view left = std::string_view(text).substr(0, arrow);
  std::vector<Labelled> operands;
  for (const ValueId id : *tensors) {
    const std::string_view labels = left.substr(0, left.find(','));
    left.remove_prefix(std::min(left.size(), labels.size() + 1));
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels.find(labels[i], i + 1) != std::string_view::npos) {
        return call.unknown("has an equation without a rule");
      }
    }
    if (!id.valid()) return call.unknown(kNoRule);
    operands.push_back({id, labels});
  }
  return product(call, result, operands, out);
}

// q[..., L, E], k[..., S, E], v[..., S, V], mask[..., L, S] -> [..., L, V]
BatchState attention_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const int rank = call.rank(result);
  std::vector<Operand> operands;
  const auto add = [&](std::size_t position, std::string_view name) {
    const auto id = call.tensor(position, name);
    if (!id) return false;
    std::vector<int> to = aligned(call.rank(*id), rank);
    for (std::size_t d = to.size() - std::min<std::size_t>(2, to.size()); d < to.size(); ++d) {
      to[d] = kRunOver;
    }
    operands.push_back({*id, to});
    return true;
  };
  if (!add(0, "query") || !add(1, "key") || !add(2, "value")) return call.unknown(kNoRule);
  add(3, "attn_mask");
  return carry(call, operands, result);
}

// x1[..., P, M], x2[..., R, M] -> [..., P, R]
BatchState distances_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto a = call.tensor(0, "x1");
  const auto b = call.tensor(1, "x2");
  const int rank = call.rank(result);
  if (!a || !b || call.rank(*a) < 2 || call.rank(*b) < 2) return call.unknown(kNoRule);
  std::vector<int> to_a = aligned(call.rank(*a), rank);
  std::vector<int> to_b = aligned(call.rank(*b), rank);
  to_a.back() = to_b.back() = kRunOver;
  to_b[to_b.size() - 2] = rank - 1;
  return carry(call, {{*a, to_a}, {*b, to_b}}, result);
}

// bilinear(x1[..., i], x2[..., j], w, b)
BatchState bilinear_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  std::vector<Operand> operands;
  for (const auto& [at, name] : {std::pair{0, "input1"}, {1, "input2"}}) {
    const auto x = call.tensor(static_cast<std::size_t>(at), name);
    if (!x || call.rank(*x) != call.rank(result)) return call.unknown(kNoRule);
    operands.push_back({*x, straight(call.rank(*x))});
    operands.back().to.back() = kRunOver;
  }
  for (const auto& [at, name] : {std::pair{2, "weight"}, {3, "bias"}}) {
    if (const auto w = call.tensor(static_cast<std::size_t>(at), name))
      operands.push_back({*w, {}});
  }
  return carry(call, operands, result);
}

// The fast path of nn.TransformerEncoderLayer and nn.MultiheadAttention, batch first; masks come
// with their type: 0 for [L, L], 1 for [N, L].
BatchState fused_attention_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "src");
  if (!x || call.rank(*x) != 3) return call.unknown(kNoRule);
  std::vector<Operand> operands;
  for (const ValueId id : call.graph().inputs_of(call.id())) {
    const bool samples = call.rank(id) >= 2 && call.state(id).is_batched();
    std::vector<int> to;
    if (samples) {
      to.assign(static_cast<std::size_t>(call.rank(id)), kRunOver);
      to[0] = 0;
    }
    operands.push_back({id, to});
  }
  return carry(call, operands, result);
}

}  // namespace

void add_product_rules(BatchRules& rules) {
  rules.add({"mm"}, mm_rule);
  rules.add({"bmm"}, bmm_rule);
  rules.add({"mv"}, mv_rule);
  rules.add({"dot", "vdot"}, dot_rule);
  rules.add({"outer", "ger"}, outer_rule);
  rules.add({"addmm", "addmv", "baddbmm"}, added_product_rule);
  rules.add({"linear"}, linear_rule);
  rules.add({"matmul"}, matmul_rule);
  rules.add({"einsum"}, einsum_rule);
  rules.add({"scaled_dot_product_attention"}, attention_rule);
  rules.add({"cdist", "_cdist_forward"}, distances_rule);
  rules.add({"bilinear"}, bilinear_rule);
  rules.add({"_transformer_encoder_layer_fwd", "_native_multi_head_attention"},
            fused_attention_rule);
}

}  // namespace kerf
