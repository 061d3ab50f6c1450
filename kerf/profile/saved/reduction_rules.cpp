// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Reductions that are no sums, and losses.
#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

void input(SavedCall& call) { call.keep(call.tensor(0, "self")); }

void input_and_result(SavedCall& call) {
  input(call);
  call.keep(call.result());
}

void both_arguments(SavedCall& call) {
  input(call);
  call.keep(call.tensor(1, "target"));
}

// The logarithm of the softmax, the target, and the sum of the weights.
void cross_entropy(SavedCall& call) {
  const ValueId scores = call.tensor(0, "self");
  call.keep_copy(scores);
  call.keep(call.tensor(1, "target"));
  call.keep(call.tensor(2, "weight"));
  call.keep_own(1, call.value(scores).dtype);
}

}  // namespace

void add_saved_reduction_rules(SavedRules& rules) {
  rules.add({"var"}, input);
  rules.add({"logsumexp", "prod", "std", "norm", "linalg_vector_norm"}, input_and_result);
  rules.add({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}, both_arguments);
  rules.add({"cross_entropy_loss"}, cross_entropy);
}

}  // namespace kerf
