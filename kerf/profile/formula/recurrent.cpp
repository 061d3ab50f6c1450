// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/batch_flow/call.h"
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

// Matrices of each direction: of the input, of the hidden state, and of the output where that is
// projected, which has fewer rows than the gates.
int matrices_of_direction(const Call& call) {
  std::vector<double> rows;
  for (const ValueId id : call.inputs()) {
    if (is_matrix(call, id)) rows.push_back(call.shape(id).front());
  }
  return rows.size() > 2 && rows[2] != rows[0] ? 3 : 2;
}

// Fused kernels make the gradients of the first states whether they are wanted or not: those of an
// accelerator, and oneDNN's for an LSTM.
bool is_fused(const Call& call) {
  const std::string_view op = operator_name(call.node().op);
  return !op.ends_with("_cell") && (op == "lstm" || !call.on_host());
}

// Samples that the first states are of, where no gradient of those is made.
double rows_without_gradient(const Backward& backward) {
  const Call& call = backward.call();
  if (is_fused(call)) return 0;
  const std::size_t place = call.node().op.ends_with(".data") ? 2 : 1;
  const ValueId state = call.tensor(place, "hx");
  if (!state.valid() || backward.wanted(state)) return 0;
  const std::vector<double> shape = call.shape(state);
  return shape.size() < 2 ? 0 : shape[shape.size() - 2];
}

// Back through time: each step passes its gradient on through every matrix, except those that read
// the input where it wants none: the first of either direction (input, hidden; input, hidden), and
// the first step through those that read the hidden state.
void of_recurrent(Backward& backward) {
  const Call& call = backward.call();
  const ValueId input = call.tensor(0);
  const bool is_data = call.node().op.ends_with(".data");
  const bool both_ways = call.flag(is_data ? 8 : 7, "bidirectional");
  const double rows = tokens(call);
  const double without = rows_without_gradient(backward);
  const int group = matrices_of_direction(call);
  double through = 0;
  double learned = 0;
  int matrix = 0;
  ValueId weight;
  for (const ValueId id : call.inputs()) {
    if (!is_matrix(call, id)) continue;
    const bool reads_input = matrix == 0 || (both_ways && matrix == group);
    if (!reads_input || backward.wanted(input)) through += rows * call.elements(id);
    if (matrix % group == 1) through -= without * call.elements(id);
    if (backward.wanted(id)) {
      learned += call.elements(id);
      weight = id;
    }
    ++matrix;
  }
  const double gates = kGatesBack * call.output_elements();
  backward.add(input, OpCost{Unit::matrix, 2 * through + gates, through,
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
