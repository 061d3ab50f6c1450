// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators that run along named dimensions: sums, maxima, softmax, sorting, transforms.
#include <algorithm>

#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

// Dimensions that an argument names. All of them when it is left out, empty or not understood:
// so much is run over at most.
std::vector<int> dims_or_all(const Call& call, std::size_t position, int rank) {
  std::vector<int> out;
  const auto named = call.integers(position, "dim");
  if (!named || named->empty()) return straight(rank);
  for (const std::int64_t dim : *named) {
    const auto found = Call::dimension(dim, rank);
    if (!found) return straight(rank);
    out.push_back(*found);
  }
  return out;
}

// The operand's dimensions, `over` run over; whether those are kept is seen from the result.
std::vector<int> reduced_map(int rank, const std::vector<int>& over, bool kept) {
  std::vector<int> to;
  int next = 0;
  for (int d = 0; d < rank; ++d) {
    const bool runs = std::find(over.begin(), over.end(), d) != over.end();
    to.push_back(runs ? kRunOver : next);
    if (!runs || kept) ++next;
  }
  return to;
}

BatchState reduce(const Call& call, ValueId result, const std::vector<int>& over) {
  const auto x = call.tensor(0, "self");
  if (!x) return call.unknown("has arguments without a rule");
  const int rank = call.rank(*x);
  return carry(call, {{*x, reduced_map(rank, over, call.rank(result) == rank && rank > 0)}},
               result);
}

template <std::size_t Position>
BatchState reduction_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  if (!x) return call.unknown("has arguments without a rule");
  return reduce(call, result, dims_or_all(call, Position, call.rank(*x)));
}

// max(x), max(x, dim) and max(x, other)
BatchState extreme_rule(const Call& call, ValueId result, std::size_t position) {
  if (overload_name(call.node().op) == "other") return pointwise_rule(call, result, position);
  return reduction_rule<1>(call, result, position);
}

BatchState everything_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  std::vector<Operand> operands;
  for (const ValueId id : call.graph().inputs_of(call.id())) {
    operands.push_back({id, std::vector<int>(static_cast<std::size_t>(call.rank(id)), kRunOver)});
  }
  return carry(call, operands, result);
}

// Along one dimension, the last when none is named; the shape stays.
template <std::size_t Position>
BatchState along_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  if (!x) return call.unknown("has arguments without a rule");
  const int rank = call.rank(*x);
  const bool named = call.argument(Position, "dim") != nullptr;
  std::vector<int> over = named ? dims_or_all(call, Position, rank) : std::vector<int>{rank - 1};
  return carry(call, {{*x, reduced_map(rank, over, true)}}, result);
}

// Where samples are sorted they change places; a later step may put them back, so nothing is said.
template <std::size_t Position>
BatchState sorting_rule(const Call& call, ValueId result, std::size_t position) {
  const BatchState out = along_rule<Position>(call, result, position);
  return out.kind == BatchState::Kind::mixed && out.by == call.id()
             ? call.unknown("sorts across the samples")
             : out;
}

// sort(x, dim, descending), but sort.stable(x, *, stable, dim, descending)
BatchState sort_rule(const Call& call, ValueId result, std::size_t position) {
  return overload_name(call.node().op) == "stable" ? sorting_rule<99>(call, result, position)
                                                   : sorting_rule<1>(call, result, position);
}

// How many of each there are; the counts often say where to put things back.
BatchState counting_rule(const Call& call, ValueId result, std::size_t position) {
  const BatchState out = everything_rule(call, result, position);
  return out.kind == BatchState::Kind::mixed && out.by == call.id()
             ? call.unknown("counts across the samples")
             : out;
}

// flip(x, dims) and roll(x, shifts, dims): without dims, over everything.
template <std::size_t Position>
BatchState turning_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  if (!x) return call.unknown("has arguments without a rule");
  const int rank = call.rank(*x);
  std::vector<int> over = straight(rank);
  if (const auto named = call.integers(Position, "dims"); named && !named->empty()) {
    over.clear();
    for (const std::int64_t dim : *named) over.push_back(Call::dimension(dim, rank).value_or(0));
  }
  return carry(call, {{*x, reduced_map(rank, over, true)}}, result);
}

// cosine_similarity(a, b, dim=1): broadcast, then one dimension goes.
BatchState similarity_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto a = call.tensor(0, "x1");
  const auto b = call.tensor(1, "x2");
  if (!a || !b) return call.unknown("has arguments without a rule");
  const bool by_name = operator_name(call.node().op) == "cosine_similarity";
  const int rank = std::max(call.rank(*a), call.rank(*b));
  const auto dim = by_name ? Call::dimension(call.integer(2, "dim").value_or(1), rank) : rank - 1;
  const bool kept = call.rank(result) == rank;
  if (!dim) return call.unknown("has arguments without a rule");
  const std::vector<int> whole = reduced_map(rank, {*dim}, kept);
  std::vector<Operand> operands;
  for (const ValueId id : {*a, *b}) {
    operands.push_back({id, {whole.end() - call.rank(id), whole.end()}});
  }
  return carry(call, operands, result);
}

}  // namespace

void add_reduction_rules(BatchRules& rules) {
  rules.add({"sum",       "mean",     "prod",      "amax",          "amin",
             "any",       "all",      "logsumexp", "var",           "std",
             "var_mean",  "std_mean", "argmax",    "argmin",        "median",
             "nanmedian", "nansum",   "nanmean",   "count_nonzero", "special_logsumexp"},
            reduction_rule<1>);
  rules.add({"max", "min"}, extreme_rule);
  rules.add({"norm", "linalg_vector_norm"}, reduction_rule<2>);
  rules.add({"aminmax"}, reduction_rule<99>);  // by keyword only
  rules.add({"item", "_local_scalar_dense", "is_nonzero", "equal", "trace", "frobenius_norm",
             "nuclear_norm", "dist", "allclose"},
            everything_rule);
  rules.add({"histc", "bincount", "unique", "_unique2", "nonzero", "masked_select"}, counting_rule);
  rules.add(
      {"softmax", "_softmax", "_safe_softmax", "log_softmax", "_log_softmax", "cumsum", "cumprod",
       "cummax", "cummin", "logcumsumexp", "glu", "special_softmax", "special_log_softmax"},
      along_rule<1>);
  rules.add({"topk", "fft_fft", "fft_ifft", "fft_rfft", "fft_irfft", "fft_hfft", "fft_ihfft"},
            along_rule<2>);
  rules.add({"sort"}, sort_rule);
  rules.add({"argsort"}, sort_rule);
  rules.add({"flip"}, turning_rule<1>);
  rules.add({"roll"}, turning_rule<2>);
  rules.add({"cosine_similarity", "pairwise_distance"}, similarity_rule);
}

}  // namespace kerf
