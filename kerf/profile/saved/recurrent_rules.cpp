// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Recurrent layers. The host runs them cell by cell, as operators that keep what each of them
// needs; an LSTM of single numbers without projections is one call of oneDNN, which keeps a
// workspace; an accelerator has cuDNN, whose reserve is not documented and is taken to be what the
// cells keep.
#include <algorithm>

#include "kerf/graph/argument.h"
#include "kerf/profile/saved/rules.h"

namespace kerf {
namespace {

struct Recurrent {
  ValueId input;
  std::int64_t steps, batch, width, hidden;  // width: of the input
  std::int64_t gates;                        // rows of the matrix that reads the hidden state
  std::int64_t layers, directions;
  bool batch_first, drops;
  DType dtype;
  std::int64_t states() const { return steps * batch * hidden; }  // of one layer and direction
};

bool read_recurrent(const SavedCall& call, Recurrent& r) {
  r.input = call.tensor(0, "input");
  const Argument* const params = call.argument(2, "params");
  if (!call.node().op.ends_with(".input") || !r.input.valid() || params == nullptr) return false;
  if (call.rank(r.input) != 3) return false;
  std::vector<ValueId> weights;
  for_each_value(*params, [&](ValueId id) { weights.push_back(id); });
  if (weights.size() < 2 || call.rank(weights[1]) != 2) return false;
  r.batch_first = call.flag(8, "batch_first", false);
  r.steps = call.size(r.input, r.batch_first ? 1 : 0);
  r.batch = call.size(r.input, r.batch_first ? 0 : 1);
  r.width = call.size(r.input, 2);
  r.hidden = call.size(weights[1], 1);  // of the matrix that reads the hidden state
  r.gates = call.size(weights[1], 0);
  r.layers = static_cast<std::int64_t>(call.number(4, "num_layers", 1));
  r.directions = call.flag(7, "bidirectional", false) ? 2 : 1;
  r.drops = call.number(5, "dropout", 0) > 0 && call.flag(6, "train", true);
  r.dtype = call.value(r.input).dtype;
  return true;
}

// The first layer's input, time first, in `copies` where it has to be turned; the later layers' is
// what the ones before made, and the factors of a dropout between them.
void keep_inputs(SavedCall& call, const Recurrent& r, std::int64_t copies) {
  const bool is_turned = r.batch_first && r.steps > 1 && r.batch > 1;
  if (!is_turned) call.keep(r.input);
  for (std::int64_t copy = 0; is_turned && copy < copies; ++copy) call.keep_copy(r.input);
  for (std::int64_t layer = 1; layer < r.layers; ++layer) {
    call.keep_own(r.states() * r.directions, r.dtype);
    if (r.drops) call.keep_own(r.states() * r.directions, r.dtype);
  }
}

void keep_first_states(SavedCall& call) {
  if (const Argument* const states = call.argument(1, "hx")) {
    for_each_value(*states, [&](ValueId id) { call.keep(id); });
  }
}

// `row`: elements that the steps of a layer and direction keep for a sample.
void keep_rows(SavedCall& call, const Recurrent& r, std::int64_t row) {
  keep_inputs(call, r, r.directions);
  keep_first_states(call);
  call.keep_own(r.layers * r.directions * row * r.batch, r.dtype);
}

// `tensors`: what a cell keeps, in units of its hidden state; `shared`: how many of them are the
// first states, which are arguments.
void keep_cells(SavedCall& call, const Recurrent& r, int tensors, int shared) {
  keep_rows(call, r, (tensors * r.steps - shared) * r.hidden);
}

// An LSTM whose hidden state is a projection of what its cells give, which is kept, too.
void keep_projected_cells(SavedCall& call, const Recurrent& r) {
  const std::int64_t cell = r.gates / 4;
  keep_rows(call, r, (7 * cell + r.hidden) * r.steps - cell - r.hidden);
}

constexpr std::int64_t kPage = 4096;

std::int64_t round_up(std::int64_t number, std::int64_t to) { return (number + to - 1) / to * to; }

// Rows of floats start at lines of a cache, and not all in the same set of it.
std::int64_t row_floats(std::int64_t elements) {
  const std::int64_t row = round_up(elements, 16);
  return row % 256 == 0 ? row + 16 : row;
}

// oneDNN's cpu/rnn/rnn_utils.cpp, set_offsets of a training pass: gates, states of layers and of
// steps with their gradients, states of cells with theirs, and one buffer for the cells' grid.
std::int64_t workspace(const Recurrent& r, std::int64_t width) {
  const auto pages = [](std::int64_t floats) { return round_up(4 * floats, kPage); };
  const std::int64_t rows = r.steps * r.batch;
  const std::int64_t state_rows = 2 * (r.steps + 1) * r.batch;
  return pages(rows * row_floats(4 * r.hidden)) +
         3 * pages(state_rows * row_floats(std::max(width, r.hidden))) +
         2 * pages(state_rows * r.hidden) + pages(rows * row_floats(r.hidden));
}

// Layer by layer and direction by direction: the result, the last states and a workspace. The
// result of a layer of one direction is the next layer's input, or the call's result.
void fused_lstm(SavedCall& call, const Recurrent& r) {
  keep_inputs(call, r, 1);
  keep_first_states(call);
  for (std::int64_t layer = 0; layer < r.layers; ++layer) {
    const std::int64_t width = layer == 0 ? r.width : r.hidden * r.directions;
    const bool is_last = layer == r.layers - 1;
    for (std::int64_t direction = 0; direction < r.directions; ++direction) {
      if (r.directions == 2 || (r.drops && !is_last)) call.keep_own(r.states(), r.dtype);
      call.keep_own(2 * r.batch * r.hidden, r.dtype);
      call.keep_own(Bytes{workspace(r, width)});
    }
  }
  if (r.directions == 1) call.keep(call.result());
  // Without biases it is given zeros, as many as there are weights.
  if (!call.flag(3, "has_biases", true)) {
    for_each_value(*call.argument(2, "params"), [&](ValueId id) { call.keep_copy(id); });
  }
}

void on_accelerator(SavedCall& call, const Recurrent& r, int tensors) {
  keep_cells(call, r, tensors, 0);
  call.keep(call.result());
  call.estimate();
}

void lstm(SavedCall& call) {
  Recurrent r;
  if (!read_recurrent(call, r)) return call.give_up();
  if (r.gates != 4 * r.hidden) {  // not for oneDNN
    keep_projected_cells(call, r);
    if (call.on_accelerator()) call.estimate();
    return;
  }
  if (call.on_accelerator()) return on_accelerator(call, r, 7);
  if (r.dtype != DType::f32 && r.dtype != DType::bf16) return keep_cells(call, r, 7, 2);
  fused_lstm(call, r);
  call.estimate();  // the layout is a matter of oneDNN's version and of the processor
}

void gru(SavedCall& call) {
  Recurrent r;
  if (!read_recurrent(call, r)) return call.give_up();
  call.on_accelerator() ? on_accelerator(call, r, 7) : keep_cells(call, r, 7, 1);
}

void plain_cells(SavedCall& call) {
  Recurrent r;
  if (!read_recurrent(call, r)) return call.give_up();
  call.on_accelerator() ? on_accelerator(call, r, 2) : keep_cells(call, r, 1, 0);
}

}  // namespace

void add_saved_recurrent_rules(SavedRules& rules) {
  rules.add({"lstm"}, lstm);
  rules.add({"gru"}, gru);
  rules.add({"rnn_tanh", "rnn_relu"}, plain_cells);
}

}  // namespace kerf
