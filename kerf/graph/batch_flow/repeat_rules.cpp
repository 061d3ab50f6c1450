// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators that repeat what there is: expand, repeat, repeat_interleave.
#include <algorithm>

#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

// A size of one, or none at all, becomes B: the same for every sample.
BatchState expanded(const Call& call, std::optional<ValueId> x, ValueId result) {
  if (!x || !x->valid() || call.rank(*x) > call.rank(result)) return call.unknown(kNoRule);
  const BatchState& from = call.state(*x);
  if (from.is_lost()) return from;
  if (!from.is_fixed()) {
    const auto to = aligned(call.rank(*x), call.rank(result));
    const Sizes& shape = call.value(result).shape;
    const auto sized = std::count_if(shape.begin(), shape.end(),
                                     [](const Expr& size) { return !size.is_constant(); });
    if (sized > 1) return call.mixed("sets every sample beside every other");
    return carry(call, {{*x, to}}, result, Moves::yes);
  }
  const auto out = state_by_shape(call.value(result), BatchRows::same);
  return out ? *out : call.unknown("makes a tensor that is not a batch of samples");
}

BatchState expand_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  return expanded(call, call.tensor(0, "self"), result);
}

// A result for each tensor of the list, expanded to the shape of all of them together.
BatchState broadcast_rule(const Call& call, ValueId result, std::size_t position) {
  const auto list = call.tensors(0, "tensors");
  if (!list || position >= list->size()) return call.unknown(kNoRule);
  return expanded(call, (*list)[position], result);
}

// repeat(x, [r, ...]): the whole dimension r times over, one after the other.
BatchState repeat_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  const auto given = call.sizes(1, operator_name(call.node().op) == "tile" ? "dims" : "repeats");
  if (!x || !given) return call.unknown(kNoRule);
  const BatchState& from = call.state(*x);
  if (from.is_lost()) return from;
  if (from.rows == BatchRows::numbers) return call.unknown("repeats the numbers of samples");
  const int rank = call.rank(result);
  const int added = rank - call.rank(*x);
  std::vector<Expr> repeats(
      static_cast<std::size_t>(rank) - std::min(given->size(), static_cast<std::size_t>(rank)),
      Expr(1));
  repeats.insert(repeats.end(), given->begin(), given->end());
  if (added < 0 || static_cast<int>(repeats.size()) != rank) return call.unknown(kNoRule);
  BatchState out = from;
  if (from.is_batched()) out.dim = from.dim + added;
  for (int d = 0; d < rank; ++d) {
    const Expr& times = repeats[static_cast<std::size_t>(d)];
    if (times.is_constant()) {
      if (out.is_batched() && from.is_batched() && d == out.dim) out.outer *= times.constant();
      continue;
    }
    if (out.is_batched()) return call.mixed("combines every sample with every other");
    const auto factor = batch_factor(times);
    const Expr size =
        d < added ? Expr(1) : call.value(*x).shape[static_cast<std::size_t>(d - added)];
    if (!factor || *factor != 1 || !size.is_constant()) return call.unknown(kNoRule);
    // B copies of the dimension: each is one sample's.
    const BatchRows rows = size == Expr(1) ? BatchRows::same : BatchRows::own;
    out = BatchState::batched(d, 1, size.constant(), rows);
  }
  return held_to_shape(call, result, out);
}

// repeat_interleave(x, r, dim): each element r times in a row.
BatchState repeat_interleave_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  const auto times = call.size(1, "repeats");
  const auto named = call.integer(2, "dim");
  if (!x) return call.unknown(kNoRule);
  const BatchState& from = call.state(*x);
  if (from.is_lost()) return from;
  if (!times || !named || from.rows == BatchRows::numbers) return call.unknown(kNoRule);
  const auto dim = Call::dimension(*named, call.rank(*x));
  if (!dim) return call.unknown(kNoRule);
  BatchState out = from;
  if (times->is_constant()) {
    if (from.is_batched() && from.dim == *dim) out.inner *= times->constant();
    return held_to_shape(call, result, out);
  }
  const Expr& size = call.value(*x).shape[static_cast<std::size_t>(*dim)];
  if (from.is_batched()) return call.mixed("combines every sample with every other");
  if (!(*times == Expr::batch()) || !size.is_constant()) return call.unknown(kNoRule);
  const BatchRows rows = size == Expr(1) ? BatchRows::same : BatchRows::own;
  return held_to_shape(call, result, BatchState::batched(*dim, size.constant(), 1, rows));
}

}  // namespace

void add_repeat_rules(BatchRules& rules) {
  rules.add({"expand", "expand_as", "broadcast_to", "expand_copy"}, expand_rule,
            BatchNumbers::sizes);
  rules.add({"broadcast_tensors"}, broadcast_rule);
  rules.add({"repeat", "tile"}, repeat_rule, BatchNumbers::sizes);
  rules.add({"repeat_interleave"}, repeat_interleave_rule, BatchNumbers::sizes);
}

}  // namespace kerf
