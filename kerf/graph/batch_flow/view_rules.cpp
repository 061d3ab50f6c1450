// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators that give the same elements another shape, or their dimensions another order.
#include <algorithm>

#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

// Elements before and after the batch's dimension; nothing when another size depends on B.
struct Around {
  std::int64_t before = 1;
  std::int64_t after = 1;
};

std::optional<Around> around(const Sizes& shape, std::size_t dim) {
  Around out;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (d == dim) continue;
    if (!shape[d].is_constant()) return std::nullopt;
    std::int64_t& side = d < dim ? out.before : out.after;
    if (__builtin_mul_overflow(side, shape[d].constant(), &side)) return std::nullopt;
  }
  return out;
}

std::optional<std::size_t> batch_dim_of(const Sizes& shape) {
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (!shape[d].is_constant()) return d;
  }
  return std::nullopt;
}

// Row by row, element (p*B + b)*q_size + q belongs to sample b; a new shape changes neither. The
// dimension that holds B now must cut that sequence at whole rows of samples.
std::optional<BatchState> relaid(const BatchState& from, const Sizes& shape,
                                 const Sizes& to_shape) {
  const auto to = batch_dim_of(to_shape);
  if (!to) return std::nullopt;
  const auto old_around = around(shape, static_cast<std::size_t>(from.dim));
  const auto new_around = around(to_shape, *to);
  const auto factor = batch_factor(to_shape[*to]);
  if (!old_around || !new_around || !factor) return std::nullopt;
  const std::int64_t rows_before = old_around->before * from.outer;
  const std::int64_t rows_after = old_around->after * from.inner;
  if (rows_before == 0 || rows_after == 0) {  // no elements: whatever the layout
    return BatchState::batched(static_cast<int>(*to), 1, *factor, BatchRows::same);
  }
  if (new_around->before == 0 || new_around->after == 0 || rows_before % new_around->before != 0 ||
      rows_after % new_around->after != 0) {
    return std::nullopt;
  }
  BatchState out = from;
  out.dim = static_cast<int>(*to);
  out.outer = rows_before / new_around->before;
  out.inner = rows_after / new_around->after;
  if (out.outer * out.inner != *factor) return std::nullopt;
  // The same for all samples, and now other elements stand in the dimension as well.
  const bool alone =
      new_around->before % old_around->before == 0 && new_around->after % old_around->after == 0;
  if (from.rows == BatchRows::same && !alone) out.rows = BatchRows::own;
  if (from.rows == BatchRows::numbers && (out.outer != 1 || out.inner != 1)) {
    out.rows = BatchRows::own;
  }
  return out;
}

BatchState reshaped(const Call& call, ValueId x, ValueId result) {
  const BatchState& from = call.state(x);
  if (from.is_lost()) return from;
  if (from.is_fixed()) return held_to_shape(call, result, from);
  const Sizes& shape = call.value(x).shape;
  const Sizes& to_shape = call.value(result).shape;
  auto out = relaid(from, shape, to_shape);
  if (!out && from.any_layout()) {  // the other way to lay it out
    BatchState turned = from;
    std::swap(turned.outer, turned.inner);
    out = relaid(turned, shape, to_shape);
  }
  if (!out) return call.mixed("gives a shape that puts parts of different samples together");
  // arange(B) that is laid out with other elements is a row number no more.
  if (from.rows == BatchRows::numbers && out->rows != BatchRows::numbers) {
    return call.unknown("depends on a sample's position in the batch");
  }
  return held_to_shape(call, result, *out);
}

BatchState reshape_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  // view.dtype reads the bytes of the last dimension as other numbers.
  if (!x || overload_name(call.node().op) == "dtype") return call.unknown(kNoRule);
  return reshaped(call, *x, result);
}

// out[d] is the operand's dimension that stands at d.
BatchState permuted(const Call& call, ValueId x, ValueId result, const std::vector<int>& order) {
  std::vector<int> to(order.size(), kNotFollowed);
  for (std::size_t d = 0; d < order.size(); ++d) {
    to[static_cast<std::size_t>(order[d])] = static_cast<int>(d);
  }
  return carry(call, {{x, to}}, result, Moves::yes);
}

BatchState permute_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  const auto dims = call.integers(1, "dims");
  if (!x || !dims || static_cast<int>(dims->size()) != call.rank(*x)) return call.unknown(kNoRule);
  std::vector<int> order;
  for (const std::int64_t dim : *dims) {
    const auto found = Call::dimension(dim, call.rank(*x));
    if (!found) return call.unknown(kNoRule);
    order.push_back(*found);
  }
  return permuted(call, *x, result, order);
}

BatchState swapped(const Call& call, ValueId result, std::int64_t first, std::int64_t second) {
  const auto x = call.tensor(0, "self");
  if (!x) return call.unknown(kNoRule);
  std::vector<int> order = straight(call.rank(*x));
  const auto a = Call::dimension(first, call.rank(*x));
  const auto b = Call::dimension(second, call.rank(*x));
  if (!a || !b) return call.unknown(kNoRule);
  std::swap(order[static_cast<std::size_t>(*a)], order[static_cast<std::size_t>(*b)]);
  return permuted(call, *x, result, order);
}

BatchState transpose_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto first = call.integer(1, "dim0");
  const auto second = call.integer(2, "dim1");
  if (!first || !second) return call.unknown(kNoRule);
  return swapped(call, result, *first, *second);
}

// t(x), x.mT, x.mH
BatchState matrix_transpose_rule(const Call& call, ValueId result, std::size_t position) {
  if (call.rank(result) < 2) return reshape_rule(call, result, position);
  return swapped(call, result, -2, -1);
}

BatchState reversed_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  if (!x) return call.unknown(kNoRule);
  std::vector<int> order = straight(call.rank(*x));
  std::reverse(order.begin(), order.end());
  return permuted(call, *x, result, order);
}

BatchState movedim_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  const auto from = call.integers(1, "source");
  const auto to = call.integers(2, "destination");
  if (!x || !from || !to || from->size() != to->size()) return call.unknown(kNoRule);
  const int rank = call.rank(*x);
  std::vector<int> order(static_cast<std::size_t>(rank), -1);
  std::vector<bool> moved(static_cast<std::size_t>(rank), false);
  for (std::size_t i = 0; i < from->size(); ++i) {
    const auto source = Call::dimension((*from)[i], rank);
    const auto target = Call::dimension((*to)[i], rank);
    if (!source || !target) return call.unknown(kNoRule);
    order[static_cast<std::size_t>(*target)] = *source;
    moved[static_cast<std::size_t>(*source)] = true;
  }
  int next = 0;
  for (int& source : order) {
    if (source >= 0) continue;
    while (next < rank && moved[static_cast<std::size_t>(next)]) ++next;
    if (next == rank) return call.unknown(kNoRule);  // a dimension that is moved twice
    source = next++;
  }
  return permuted(call, *x, result, order);
}

// The last dimension changes, or two are made of it; the others stay.
BatchState last_dim_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  if (!x || call.rank(*x) == 0) return call.unknown(kNoRule);
  std::vector<int> to = straight(call.rank(*x));
  if (call.rank(result) <= call.rank(*x)) to.back() = kNotFollowed;
  return carry(call, {{*x, to}}, result);
}

// tril, triu: what is kept depends on the place in the last two dimensions.
BatchState triangle_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  if (!x || call.rank(*x) < 2) return call.unknown(kNoRule);
  std::vector<int> to = straight(call.rank(*x));
  to[to.size() - 1] = to[to.size() - 2] = kRunOver;
  return carry(call, {{*x, to}}, result);
}

// unfold(x, dim, size, step): windows along one dimension, their elements in a new last one.
BatchState unfold_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  const auto named = call.integer(1, "dimension");
  if (!x || !named) return call.unknown(kNoRule);
  const auto dim = Call::dimension(*named, call.rank(*x));
  if (!dim) return call.unknown(kNoRule);
  std::vector<int> to = straight(call.rank(*x));
  to[static_cast<std::size_t>(*dim)] = kRunOver;
  return carry(call, {{*x, to}}, result);
}

// diagonal(x, offset, dim1, dim2): two dimensions go, one comes at the end.
BatchState diagonal_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  if (!x) return call.unknown(kNoRule);
  const auto a = Call::dimension(call.integer(2, "dim1").value_or(0), call.rank(*x));
  const auto b = Call::dimension(call.integer(3, "dim2").value_or(1), call.rank(*x));
  if (!a || !b) return call.unknown(kNoRule);
  std::vector<int> to;
  int next = 0;
  for (int d = 0; d < call.rank(*x); ++d) to.push_back(d == *a || d == *b ? kRunOver : next++);
  return carry(call, {{*x, to}}, result);
}

}  // namespace

void add_view_rules(BatchRules& rules) {
  rules.add({"view", "reshape", "_unsafe_view", "flatten", "unflatten", "squeeze", "unsqueeze",
             "ravel", "view_as", "reshape_as", "_reshape_alias", "view_copy", "squeeze_copy",
             "unsqueeze_copy", "_reshape_copy"},
            reshape_rule, BatchNumbers::sizes);
  rules.add({"permute", "permute_copy"}, permute_rule);
  rules.add({"transpose", "swapaxes", "swapdims", "transpose_copy"}, transpose_rule);
  rules.add({"t", "mT", "matrix_H", "mH", "adjoint", "t_copy"}, matrix_transpose_rule);
  rules.add({"numpy_T"}, reversed_rule);
  rules.add({"movedim", "moveaxis"}, movedim_rule);
  rules.add({"view_as_real", "view_as_complex"}, last_dim_rule);
  rules.add({"tril", "triu"}, triangle_rule);
  rules.add({"unfold"}, unfold_rule);
  rules.add({"diagonal"}, diagonal_rule);
}

}  // namespace kerf
