// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Recurrent layers: the batch stands in the first or second dimension of the sequence, and in the
// second of the states.
#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

std::vector<int> only(int rank, int dim, int to_dim) {
  std::vector<int> to(static_cast<std::size_t>(rank), kRunOver);
  if (dim < rank) to[static_cast<std::size_t>(dim)] = to_dim;
  return to;
}

// The states: a list for an LSTM, one tensor for the others.
std::vector<ValueId> states_of(const Call& call) {
  if (const auto list = call.tensors(1, "hx")) return *list;
  if (const auto one = call.tensor(1, "hx")) return {*one};
  return {};
}

// lstm.input(x, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first)
BatchState sequence_rule(const Call& call, ValueId result, std::size_t position) {
  const auto x = call.tensor(0, "input");
  const auto params = call.tensors(2, "params");
  const std::vector<ValueId> states = states_of(call);
  if (overload_name(call.node().op) != "input" || !x || !params || states.empty() ||
      call.rank(*x) != 3) {
    return call.unknown(kNoRule);
  }
  const int batch = call.flag(8, "batch_first", false) ? 0 : 1;
  const int to = position == 0 ? batch : 1;
  std::vector<Operand> operands{{*x, only(3, batch, to)}};
  for (const ValueId id : states) {
    if (!id.valid() || call.rank(id) != 3) return call.unknown(kNoRule);
    // States are not broadcast: each sample brings its own.
    if (call.state(id).is_fixed() && !call.state(*x).is_fixed()) return call.unknown(kNoRule);
    operands.push_back({id, only(3, 1, to)});
  }
  for (const ValueId id : *params) {
    if (id.valid()) operands.push_back({id, {}});
  }
  return carry(call, operands, result);
}

// lstm_cell(x, hx, weights...): the batch is first.
BatchState cell_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "input");
  if (!x || call.rank(*x) != 2) return call.unknown(kNoRule);
  std::vector<Operand> operands{{*x, only(2, 0, 0)}};
  for (const ValueId id : states_of(call)) {
    if (!id.valid() || call.rank(id) != 2) return call.unknown(kNoRule);
    operands.push_back({id, only(2, 0, 0)});
  }
  for (std::size_t i = 2; i < call.node().args.size(); ++i) {
    const auto* id = call.node().args[i].value.find<ValueId>();
    if (id != nullptr) operands.push_back({*id, {}});
  }
  return carry(call, operands, result);
}

}  // namespace

void add_recurrent_rules(BatchRules& rules) {
  rules.add({"lstm", "gru", "rnn_tanh", "rnn_relu"}, sequence_rule);
  rules.add({"lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"}, cell_rule);
}

}  // namespace kerf
