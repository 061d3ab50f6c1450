// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/formula/table.h"

namespace kerf::formula {
namespace {

constexpr double kGates = 30;  // flops an output element
constexpr double kGatesBack = 40;

double tokens(const Call& call) {
  const std::vector<double> input = call.shape(0);
  return input.empty() || input.back() == 0 ? 0 : product(input) / input.back();
}

bool is_matrix(const Call& call, ValueId id) {
  return call.value(id).origin == Origin::weight && call.value(id).shape.size() == 2;
}

// Every weight matrix meets every token once.
std::optional<OpCost> recurrent(const Call& call) {
  if (tokens(call) == 0) return std::nullopt;
  double weights = 0;
  for (const ValueId id : call.inputs()) {
    if (is_matrix(call, id)) weights += call.elements(id);
  }
  const double macs = tokens(call) * weights;
  return OpCost{Unit::matrix, 2 * macs + kGates * call.output_elements(), macs, call.touched()};
}

// Back through time: each step passes its gradient on through every matrix, except those that read
// the input where it wants none: the first of either direction (input, hidden; input, hidden).
void of_recurrent(Backward& backward) {
  const Call& call = backward.call();
  const ValueId input = call.tensor(0);
  const bool both_ways = call.flag(7, "bidirectional");
  double through = 0;
  double learned = 0;
  int matrix = 0;
  ValueId weight;
  for (const ValueId id : call.inputs()) {
    if (!is_matrix(call, id)) continue;
    const bool reads_input = matrix == 0 || (both_ways && matrix == 2);
    if (!reads_input || backward.wanted(input)) through += call.elements(id);
    if (backward.wanted(id)) {
      learned += call.elements(id);
      weight = id;
    }
    ++matrix;
  }
  const double rows = tokens(call);
  const double gates = kGatesBack * call.output_elements();
  backward.add(input, OpCost{Unit::matrix, 2 * rows * through + gates, rows * through,
                             call.touched() + call.output_bytes() + call.bytes(input)});
  if (weight.valid()) {
    backward.add(weight, OpCost{Unit::matrix, 2 * rows * learned, rows * learned, call.touched()});
  }
}

}  // namespace

void add_recurrent(Table& table) {
  table.add({recurrent, of_recurrent}, {"lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell",
                                        "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"});
}

}  // namespace kerf::formula
