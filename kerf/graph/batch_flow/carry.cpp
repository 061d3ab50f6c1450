// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/batch_flow/carry.h"

#include <algorithm>
#include <numeric>

namespace kerf {
namespace {

constexpr std::string_view kPosition = "depends on a sample's position in the batch";

// Joins one operand's batch into what the ones before it gave.
BatchState join_operand(const Call& call, const BatchState& so_far, const Operand& operand) {
  const BatchState& state = call.state(operand.value);
  const auto dim = static_cast<std::size_t>(state.dim);
  const int to = dim < operand.to.size() ? operand.to[dim] : kNotFollowed;
  if (to == kRunOver) return call.mixed(kRunsOverSamples);
  if (to < 0) return call.unknown("has no rule for the batch in this dimension");
  BatchState moved = state;
  moved.dim = to;
  if (so_far.is_fixed()) return moved;
  if (so_far.dim != to) return call.mixed("combines every sample with every other");
  const auto both = same_layout(so_far, moved);
  return both ? *both : call.mixed("combines samples that are in different orders");
}

// A tensor that holds no sample must be the same for all of them where the batch goes.
bool broadcasts(const Call& call, const Operand& operand, int dim) {
  const Sizes& shape = call.value(operand.value).shape;
  for (std::size_t d = 0; d < operand.to.size() && d < shape.size(); ++d) {
    if (operand.to[d] == dim && !(shape[d] == Expr(1))) return false;
  }
  return true;
}

}  // namespace

const BatchState* first_lost(const Call& call, const std::vector<ValueId>& values) {
  const BatchState* found = nullptr;
  for (const ValueId id : values) {
    if (!id.valid() || !call.state(id).is_lost()) continue;
    const BatchState& state = call.state(id);
    if (state.kind == BatchState::Kind::mixed) return &state;
    if (found == nullptr) found = &state;
  }
  return found;
}

std::optional<BatchState> same_layout(const BatchState& a, const BatchState& b) {
  if (a.dim != b.dim || a.outer * a.inner != b.outer * b.inner) return std::nullopt;
  const bool equal = a.outer == b.outer;
  if (!equal && !a.any_layout() && !b.any_layout()) return std::nullopt;
  BatchState out = a.any_layout() ? b : a;
  if (a.rows != b.rows) out.rows = BatchRows::own;
  return out;
}

BatchState held_to_shape(const Call& call, ValueId result, BatchState state) {
  if (state.is_lost()) return state;
  const Value& value = call.value(result);
  for (std::size_t d = 0; d < value.shape.size(); ++d) {
    const bool here = state.is_batched() && static_cast<int>(d) == state.dim;
    const Expr& size = value.shape[d];
    if (here ? !(size == Expr::linear(0, state.outer * state.inner)) : !size.is_constant()) {
      return call.unknown("gives a size that its rule does not explain");
    }
  }
  if (state.is_batched() && state.dim >= static_cast<int>(value.shape.size())) {
    return call.unknown("gives a result without the batch dimension");
  }
  return state;
}

BatchState joined(const Call& call, const std::vector<Operand>& operands, Moves moves) {
  std::vector<ValueId> values;
  for (const Operand& operand : operands) values.push_back(operand.value);
  if (const BatchState* lost = first_lost(call, values)) return *lost;
  BatchState out;
  bool numbers = false;
  for (const Operand& operand : operands) {
    if (call.state(operand.value).is_fixed()) continue;
    numbers = numbers || call.state(operand.value).rows == BatchRows::numbers;
    out = join_operand(call, out, operand);
    if (out.is_lost()) return out;
  }
  if (numbers && moves == Moves::no) return call.unknown(kPosition);
  for (const Operand& operand : operands) {
    if (!call.state(operand.value).is_fixed() || !out.is_batched()) continue;
    if (!broadcasts(call, operand, out.dim)) {
      return call.unknown("puts the batch next to a dimension of fixed size");
    }
  }
  if (out.is_batched() && call.node().random) out.rows = BatchRows::own;
  return out;
}

BatchState carry(const Call& call, const std::vector<Operand>& operands, ValueId result,
                 Moves moves) {
  return held_to_shape(call, result, joined(call, operands, moves));
}

std::vector<int> straight(int rank) {
  std::vector<int> out(static_cast<std::size_t>(rank));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

std::vector<int> aligned(int rank, int result_rank) {
  std::vector<int> out(static_cast<std::size_t>(rank));
  std::iota(out.begin(), out.end(), result_rank - rank);
  for (int& to : out) to = to < 0 ? kNotFollowed : to;
  return out;
}

}  // namespace kerf
