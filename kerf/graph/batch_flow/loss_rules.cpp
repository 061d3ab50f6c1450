// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Losses: a number a sample when nothing is reduced, else one for all.
#include <algorithm>
#include <array>

#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/loss.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

// In which argument a loss has its reduction; nothing for other operators.
std::optional<std::size_t> reduction_at(std::string_view name) {
  if (name == "binary_cross_entropy_with_logits") return 4;
  if (name == "binary_cross_entropy" || is_class_loss(name)) return 3;
  static constexpr std::array<std::string_view, 6> kElementwise{
      "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "kl_div"};
  const bool known =
      std::find(kElementwise.begin(), kElementwise.end(), name) != kElementwise.end();
  return known ? std::optional<std::size_t>(2) : std::nullopt;
}

// All tensors, broadcast against each other.
std::vector<Operand> elementwise_operands(const Call& call) {
  const auto inputs = call.graph().inputs_of(call.id());
  int rank = 0;
  for (const ValueId id : inputs) rank = std::max(rank, call.rank(id));
  std::vector<Operand> out;
  for (const ValueId id : inputs) out.push_back({id, aligned(call.rank(id), rank)});
  return out;
}

// cross_entropy_loss(x[N, C, ...], target[N, ...], weight[C], reduction) -> [N, ...]; targets that
// are probabilities have classes too.
std::vector<Operand> class_operands(const Call& call) {
  const auto x = call.tensor(0, "self");
  const auto target = call.tensor(1, "target");
  std::vector<Operand> out;
  for (const ValueId id : call.graph().inputs_of(call.id())) {
    const int rank = call.rank(id);
    const bool labels =
        target && id == *target && !(x && id == *x) && !is_floating(call.value(id).dtype);
    if (labels) {
      out.push_back({id, straight(rank)});
    } else if ((x && id == *x) || (target && id == *target)) {
      std::vector<int> to = straight(rank);
      for (int d = 0; d < rank; ++d) to[static_cast<std::size_t>(d)] = d == 0 ? 0 : d - 1;
      if (rank > 0) to[rank < 2 ? 0 : 1] = kRunOver;
      out.push_back({id, to});
    } else {
      out.push_back({id, {}});
    }
  }
  return out;
}

BatchState loss_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const BatchState each = unreduced_loss(call);
  const bool reduced = loss_reduction(call) != 0;
  return reduced && each.is_batched() ? call.mixed(kRunsOverSamples)
                                      : held_to_shape(call, result, each);
}

}  // namespace

bool is_class_loss(std::string_view name) {
  return name == "cross_entropy_loss" || name == "nll_loss" || name == "nll_loss_nd" ||
         name == "nll_loss2d";
}

std::optional<std::int64_t> loss_reduction(const Call& call) {
  const auto at = reduction_at(operator_name(call.node().op));
  if (!at) return std::nullopt;
  return call.integer(*at, "reduction").value_or(kMeanReduction);
}

BatchState unreduced_loss(const Call& call) {
  return joined(call, is_class_loss(operator_name(call.node().op)) ? class_operands(call)
                                                                   : elementwise_operands(call));
}

void add_loss_rules(BatchRules& rules) {
  rules.add({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "kl_div",
             "binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy_loss",
             "nll_loss", "nll_loss_nd", "nll_loss2d"},
            loss_rule);
}

}  // namespace kerf
