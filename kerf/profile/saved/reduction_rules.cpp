// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Reductions that are no sums, and losses.
#include <algorithm>

#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

// Of two numbers, where both are floating.
DType promoted(DType a, DType b) { return element_size(a) < element_size(b) ? b : a; }

void input(SavedCall& call) { call.keep_before(call.tensor(0, "self")); }

void input_and_result(SavedCall& call) {
  input(call);
  call.keep(call.result());
}

void both_arguments(SavedCall& call) {
  input(call);
  call.keep(call.tensor(1, "target"));
}

// The absolute value of a difference: its sign says all.
void absolute_difference(SavedCall& call) {
  const ValueId a = call.tensor(0, "self");
  const ValueId b = call.tensor(1, "target");
  const int rank = std::max(call.rank(a), call.rank(b));
  std::int64_t elements = 1;
  for (int dim = -rank; dim < 0; ++dim) {
    const std::int64_t of_a = -dim > call.rank(a) ? 1 : call.size(a, dim);
    const std::int64_t of_b = -dim > call.rank(b) ? 1 : call.size(b, dim);
    elements *= of_a == 1 ? of_b : of_a;
  }
  call.keep_own(elements, promoted(call.value(a).dtype, call.value(b).dtype));
}

constexpr int kMean = 1;  // at::Reduction

// Targets that are probabilities: the logarithm of the softmax times each of them, and the weight.
void soft_cross_entropy(SavedCall& call, ValueId scores, ValueId target, bool smooth) {
  call.keep_copy(scores);
  if (call.needs(scores)) smooth ? call.keep_copy(target) : call.keep(target);
  call.keep(call.tensor(2, "weight"));
}

// What smoothed labels add: the targets to ignore, and the number or weight of the others.
void smoothing(SavedCall& call, ValueId scores, ValueId target) {
  call.keep_own(call.numel(target), DType::boolean);
  if (static_cast<int>(call.number(3, "reduction", kMean)) != kMean) return;
  const ValueId weight = call.tensor(2, "weight");
  call.keep_own(1, weight.valid() ? call.value(scores).dtype : DType::i64);
}

void chosen_classes(SavedCall& call) {
  call.keep(call.tensor(1, "target"));
  call.keep(call.tensor(2, "weight"));
  call.keep_own(1, call.value(call.tensor(0, "self")).dtype);  // the sum of the weights
}

// The logarithm of the softmax, the target, and the sum of the weights.
void cross_entropy(SavedCall& call) {
  const ValueId scores = call.tensor(0, "self");
  const ValueId target = call.tensor(1, "target");
  const bool smooth = call.number(5, "label_smoothing", 0) > 0;
  if (is_floating(call.value(target).dtype)) {
    return soft_cross_entropy(call, scores, target, smooth);
  }
  call.keep_copy(scores);
  chosen_classes(call);
  if (smooth) smoothing(call, scores, target);
}

void negative_likelihood(SavedCall& call) {
  input(call);
  chosen_classes(call);
}

void binary_cross_entropy(SavedCall& call) {
  both_arguments(call);
  call.keep(call.tensor(2, "weight"));
}

void binary_cross_entropy_of_logits(SavedCall& call) {
  binary_cross_entropy(call);
  call.keep(call.tensor(3, "pos_weight"));
}

void margins_of_classes(SavedCall& call) {
  both_arguments(call);
  call.keep(call.tensor(4, "weight"));
}

// And which of the classes are targets.
void margins_of_labels(SavedCall& call) {
  both_arguments(call);
  call.keep(call.result(1));
}

// Of all elements of two tensors.
void distance(SavedCall& call) {
  input(call);
  call.keep(call.tensor(1, "other"));
  call.keep(call.result());
}

void extrema(SavedCall& call) {
  input_and_result(call);
  call.keep(call.result(1));
}

void distances(SavedCall& call) {
  input(call);
  call.keep(call.tensor(1, "x2"));
  call.keep(call.result());
}

void alignment(SavedCall& call) {
  call.keep(call.tensor(0, "log_probs"));
  call.keep(call.tensor(1, "targets"));
  call.keep(call.result());
  call.keep(call.result(1));
}

}  // namespace

void add_saved_reduction_rules(SavedRules& rules) {
  rules.add({"var", "var_mean", "nansum", "renorm", "_fft_r2c"}, input);
  rules.add({"logsumexp", "prod", "std", "std_mean", "norm", "linalg_vector_norm", "cumprod",
             "logcumsumexp"},
            input_and_result);
  rules.add({"aminmax"}, extrema);
  rules.add({"dist"}, distance);
  rules.add({"_cdist_forward", "_euclidean_dist"}, distances);
  rules.add({"_ctc_loss"}, alignment);
  rules.add({"mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"}, both_arguments);
  rules.add({"multi_margin_loss"}, margins_of_classes);
  rules.add({"multilabel_margin_loss_forward"}, margins_of_labels);
  rules.add({"l1_loss"}, absolute_difference);
  rules.add({"cross_entropy_loss"}, cross_entropy);
  rules.add({"nll_loss_nd"}, negative_likelihood);
  rules.add({"binary_cross_entropy"}, binary_cross_entropy);
  rules.add({"binary_cross_entropy_with_logits"}, binary_cross_entropy_of_logits);
}

}  // namespace kerf
