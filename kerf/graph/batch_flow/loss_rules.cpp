// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Losses: a number a sample when nothing is reduced, else one for all.
#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/loss.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

BatchState reduced(const Call& call, ValueId result) {
  std::vector<Operand> operands;
  for (const ValueId id : call.graph().inputs_of(call.id())) {
    operands.push_back({id, std::vector<int>(static_cast<std::size_t>(call.rank(id)), kRunOver)});
  }
  return carry(call, operands, result);
}

template <std::size_t Reduction>
BatchState elementwise_loss_rule(const Call& call, ValueId result, std::size_t position) {
  return call.integer(Reduction, "reduction").value_or(kMeanReduction) == 0
             ? pointwise_rule(call, result, position)
             : reduced(call, result);
}

// cross_entropy_loss(x[N, C, ...], target[N, ...], weight, reduction)
BatchState class_loss_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  const auto target = call.tensor(1, "target");
  if (!x || !target || call.rank(*target) < 1) return reduced(call, result);
  if (call.integer(3, "reduction").value_or(kMeanReduction) != 0 || call.rank(*x) < 2) {
    return reduced(call, result);
  }
  std::vector<Operand> operands;
  for (const ValueId id : {*x, *target}) {
    operands.push_back({id, std::vector<int>(static_cast<std::size_t>(call.rank(id)), kRunOver)});
    operands.back().to[0] = 0;
  }
  if (const auto weight = call.tensor(2, "weight")) operands.push_back({*weight, {}});
  return carry(call, operands, result);
}

}  // namespace

void add_loss_rules(BatchRules& rules) {
  rules.add({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "kl_div"},
            elementwise_loss_rule<2>);
  rules.add({"binary_cross_entropy"}, elementwise_loss_rule<3>);
  rules.add({"binary_cross_entropy_with_logits"}, elementwise_loss_rule<4>);
  rules.add({"cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d"}, class_loss_rule);
}

}  // namespace kerf
