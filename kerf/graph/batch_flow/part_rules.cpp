// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators that take parts of a dimension or put dimensions together: slice, select, split, cat.
#include <algorithm>
#include <limits>

#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

constexpr std::string_view kSome = "takes some of the samples out of the batch";

// k where an expression is k*B, zero and negative ones included.
std::optional<std::int64_t> multiple_of_batch(const Expr& size) {
  if (size == Expr(0)) return 0;
  if (const auto factor = batch_factor(size)) return factor;
  if (const auto factor = batch_factor(Expr(0) - size)) return -*factor;
  return std::nullopt;
}

// Elements [begin, end) of the batch's own dimension: whole runs through all samples are a batch.
BatchState block_of_batch(const Call& call, const BatchState& from, const Expr& begin,
                          const Expr& end) {
  const auto first = multiple_of_batch(begin);
  const auto last = multiple_of_batch(end);
  if (!first || !last || *first < 0 || *last <= *first) return call.mixed(kSome);
  BatchState out = from;
  if (from.any_layout()) {
    out.outer = 1;
    out.inner = *last - *first;
    return out;
  }
  if (*first % from.inner != 0 || *last % from.inner != 0) return call.mixed(kSome);
  out.outer = (*last - *first) / from.inner;
  return out;
}

struct Span {
  Expr begin;
  Expr end;
  std::int64_t step = 1;
};

// x[begin:end:step] along the batch's dimension.
BatchState sliced_batch(const Call& call, ValueId x, ValueId result, Span span) {
  const BatchState& from = call.state(x);
  const Expr& size = call.value(x).shape[static_cast<std::size_t>(from.dim)];
  const std::int64_t slope = from.outer * from.inner;
  constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
  const auto normalise = [&](Expr& place) {
    if (const auto times = multiple_of_batch(place)) {
      if (*times < 0) place = size + place;
      if (*times > slope) place = size;
    } else if (place.is_constant() && place.constant() == kEnd) {
      place = size;
    }
  };
  normalise(span.begin);
  normalise(span.end);
  const bool whole = span.begin == Expr(0) && span.end == size;
  if (span.step == 1) {
    return held_to_shape(call, result,
                         whole ? from : block_of_batch(call, from, span.begin, span.end));
  }
  // Every step-th element, the same ones of each sample.
  const bool same_of_each = from.rows == BatchRows::own && span.step > 0 &&
                            from.inner % span.step == 0 && span.begin.is_constant() &&
                            span.begin.constant() >= 0 && span.begin.constant() < span.step &&
                            span.end == size;
  if (!same_of_each) return call.mixed(kSome);
  BatchState out = from;
  out.inner /= span.step;
  return held_to_shape(call, result, out);
}

BatchState sliced(const Call& call, ValueId result, std::int64_t named, const Span& span) {
  const auto x = call.tensor(0, "self");
  if (!x) return call.unknown(kNoRule);
  const BatchState& from = call.state(*x);
  if (from.is_lost()) return from;
  const auto dim = Call::dimension(named, call.rank(*x));
  if (!dim) return call.unknown(kNoRule);
  if (from.is_batched() && from.dim == *dim) return sliced_batch(call, *x, result, span);
  if (!span.begin.is_constant() || !span.end.is_constant()) {
    return call.unknown("takes a part that depends on the number of samples");
  }
  return carry(call, {{*x, straight(call.rank(*x))}}, result, Moves::yes);
}

BatchState slice_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  // A scalar computed from tensors is no place that can be followed.
  for (const auto& [at, name] : {std::pair{2, "start"}, {3, "end"}}) {
    if (call.tensor(static_cast<std::size_t>(at), name)) return call.unknown(kNoRule);
  }
  const Span span{call.size(2, "start").value_or(0),
                  call.size(3, "end").value_or(std::numeric_limits<std::int64_t>::max()),
                  call.integer(4, "step").value_or(1)};
  return sliced(call, result, call.integer(1, "dim").value_or(0), span);
}

BatchState narrow_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto dim = call.integer(1, "dim");
  const auto start = call.size(2, "start");
  const auto length = call.size(3, "length");
  if (!dim || !start || !length) return call.unknown(kNoRule);
  return sliced(call, result, *dim, {*start, *start + *length, 1});
}

std::vector<int> without(int rank, int dim, int instead) {
  std::vector<int> to;
  for (int d = 0; d < rank; ++d) to.push_back(d == dim ? instead : d < dim ? d : d - 1);
  return to;
}

// select(x, dim, index) and unbind(x, dim): one dimension goes.
BatchState one_of_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  if (!x || call.tensor(2, "index")) return call.unknown(kNoRule);
  const auto dim = Call::dimension(call.integer(1, "dim").value_or(0), call.rank(*x));
  if (!dim) return call.unknown(kNoRule);
  const BatchState& from = call.state(*x);
  if (from.is_batched() && from.dim == *dim) return call.mixed("takes single samples out");
  return carry(call, {{*x, without(call.rank(*x), *dim, kRunOver)}}, result, Moves::yes);
}

// Parts that follow each other in one dimension: their places are read from their sizes.
BatchState split_rule(const Call& call, ValueId result, std::size_t position) {
  const auto x = call.tensor(0, "self");
  if (!x || call.tensor(1, "sections")) return call.unknown(kNoRule);
  const BatchState& from = call.state(*x);
  if (from.is_lost()) return from;
  const auto dim = Call::dimension(call.integer(2, "dim").value_or(0), call.rank(*x));
  if (!dim) return call.unknown(kNoRule);
  if (!from.is_batched() || from.dim != *dim) {
    if (call.has_batch_number()) return call.unknown(kNoRule);
    return carry(call, {{*x, straight(call.rank(*x))}}, result, Moves::yes);
  }
  if (from.rows == BatchRows::numbers || call.rank(result) <= *dim) return call.unknown(kNoRule);
  Expr begin = 0;
  for (std::size_t k = 0; k < position; ++k) {
    const ValueId before = call.node().outputs[k];
    if (!before.valid() || call.rank(before) <= *dim) return call.unknown(kNoRule);
    begin = begin + call.value(before).shape[static_cast<std::size_t>(*dim)];
  }
  const Expr end = begin + call.value(result).shape[static_cast<std::size_t>(*dim)];
  return held_to_shape(call, result, block_of_batch(call, from, begin, end));
}

// One batch after the other.
BatchState joined_batches(const Call& call, const std::vector<ValueId>& parts, int dim,
                          ValueId result) {
  std::int64_t inner = 0;
  bool same = true;
  for (const ValueId id : parts) {
    const BatchState& state = call.state(id);
    if (!state.is_batched()) return call.unknown("adds rows to the batch that belong to no sample");
    if (state.dim != dim) return call.mixed("combines every sample with every other");
    if (state.rows == BatchRows::numbers) return call.unknown(kNoRule);
    same = same && state.any_layout();
    if (!state.any_layout() && inner != 0 && inner != state.inner) {
      return call.mixed("combines samples that are in different orders");
    }
    if (!state.any_layout()) inner = state.inner;
  }
  if (inner == 0) inner = call.state(parts[0]).inner;  // all of them the same for every sample
  BatchState out = BatchState::batched(dim, 0, inner, same ? BatchRows::same : BatchRows::own);
  for (const ValueId id : parts) {
    const std::int64_t size = call.state(id).outer * call.state(id).inner;
    if (size % inner != 0) return call.unknown(kNoRule);
    out.outer += size / inner;
  }
  // Parts that hold one number each are not one number together.
  if (same && parts.size() > 1) out.rows = BatchRows::own;
  return held_to_shape(call, result, out);
}

BatchState cat_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  auto parts = call.tensors(0, "tensors");
  if (!parts || parts->empty()) return call.unknown(kNoRule);
  // torch lets an empty list of numbers stand for nothing, whatever the others' rank.
  std::erase_if(*parts, [&](ValueId id) {
    return id.valid() && call.rank(id) == 1 && call.rank(result) != 1 &&
           call.value(id).shape[0] == Expr(0);
  });
  if (parts->empty() ||
      std::any_of(parts->begin(), parts->end(), [](ValueId id) { return !id.valid(); })) {
    return call.unknown(kNoRule);
  }
  if (const BatchState* lost = first_lost(call, *parts)) return *lost;
  const auto dim = Call::dimension(call.integer(1, "dim").value_or(0), call.rank(result));
  if (!dim) return call.unknown(kNoRule);
  const bool along = std::any_of(parts->begin(), parts->end(), [&](ValueId id) {
    return call.state(id).is_batched() && call.state(id).dim == *dim;
  });
  if (along) return joined_batches(call, *parts, *dim, result);
  std::vector<Operand> operands;
  for (const ValueId id : *parts) operands.push_back({id, straight(call.rank(id))});
  return carry(call, operands, result);
}

BatchState stack_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto parts = call.tensors(0, "tensors");
  if (!parts) return call.unknown(kNoRule);
  const auto dim = Call::dimension(call.integer(1, "dim").value_or(0), call.rank(result));
  std::vector<Operand> operands;
  for (const ValueId id : *parts) {
    if (!id.valid() || !dim) return call.unknown(kNoRule);
    std::vector<int> to;
    for (int d = 0; d < call.rank(id); ++d) to.push_back(d < *dim ? d : d + 1);
    operands.push_back({id, to});
  }
  return carry(call, operands, result);
}

}  // namespace

void add_part_rules(BatchRules& rules) {
  rules.add({"slice"}, slice_rule, BatchNumbers::sizes);
  rules.add({"narrow", "narrow_copy"}, narrow_rule, BatchNumbers::sizes);
  rules.add({"select", "unbind"}, one_of_rule);
  rules.add({"split", "split_with_sizes", "unsafe_split", "unsafe_split_with_sizes", "chunk",
             "unsafe_chunk", "tensor_split"},
            split_rule, BatchNumbers::sizes);
  rules.add({"cat", "concat", "concatenate"}, cat_rule);
  rules.add({"stack"}, stack_rule);
}

}  // namespace kerf
