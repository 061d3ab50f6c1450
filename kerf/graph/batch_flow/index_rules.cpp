// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Operators that pick or put elements by numbers: index, index_put, gather, scatter, embedding.
#include <algorithm>

#include "kerf/graph/batch_flow/carry.h"
#include "kerf/graph/batch_flow/rules.h"

namespace kerf {
namespace {

constexpr std::string_view kByNumber = "picks samples by their number in the batch";
constexpr std::string_view kBySamples = "picks rows of the batch by computed numbers";

// x[i, :, j]: which dimensions are indexed, and where all of them stand in what comes out.
struct Indexing {
  std::vector<ValueId> indices;  // by dimension of x, invalid where there is none
  std::vector<int> kept_to;      // dimension of x -> dimension of the result, -1 when indexed
  int index_rank = 0;            // of the indices, broadcast together
  int index_at = 0;              // where their dimensions begin in the result
  int result_rank = 0;

  std::vector<int> to_of_index(int rank) const {
    std::vector<int> to = aligned(rank, index_rank);
    for (int& t : to) t += index_at;
    return to;
  }
};

std::optional<Indexing> read_indexing(const Call& call, ValueId x) {
  const auto given = call.tensors(1, "indices");
  const int rank = call.rank(x);
  if (!given || static_cast<int>(given->size()) > rank) return std::nullopt;
  Indexing out;
  out.indices = *given;
  out.indices.resize(static_cast<std::size_t>(rank));
  int first = -1;
  int last = -1;
  int count = 0;
  for (int d = 0; d < rank; ++d) {
    const ValueId id = out.indices[static_cast<std::size_t>(d)];
    if (!id.valid()) continue;
    const DType dtype = call.value(id).dtype;
    if (dtype == DType::boolean || dtype == DType::u8) return std::nullopt;
    out.index_rank = std::max(out.index_rank, call.rank(id));
    first = first < 0 ? d : first;
    last = d;
    ++count;
  }
  if (count == 0) return std::nullopt;
  const bool together = last - first + 1 == count;
  out.index_at = together ? first : 0;
  int next = 0;
  for (int d = 0; d < rank; ++d) {
    if (next == out.index_at) next += out.index_rank;
    const bool indexed = out.indices[static_cast<std::size_t>(d)].valid();
    out.kept_to.push_back(indexed ? -1 : next);
    if (!indexed) ++next;
  }
  out.result_rank = rank - count + out.index_rank;
  return out;
}

// x[arange(B), ...]: the number of a sample picks its own row. Gives the dimension of the result
// that the samples stand in; a state that is lost when this is another use of numbers.
BatchState own_row(const Call& call, ValueId x, const Indexing& indexing) {
  const BatchState& from = call.state(x);
  const ValueId row = indexing.indices[static_cast<std::size_t>(from.dim)];
  const BatchState& number = call.state(row);
  if (number.is_fixed()) return call.mixed(kByNumber);
  if (number.rows != BatchRows::numbers || from.outer != 1 || from.inner != 1) {
    return call.unknown(kBySamples);
  }
  const int at = indexing.to_of_index(call.rank(row))[static_cast<std::size_t>(number.dim)];
  BatchState out = BatchState::batched(at, 1, 1);
  for (std::size_t i = 0; i < indexing.indices.size(); ++i) {
    const ValueId id = indexing.indices[i];
    if (!id.valid() || static_cast<int>(i) == from.dim) continue;
    const BatchState& state = call.state(id);
    const std::vector<int> to = indexing.to_of_index(call.rank(id));
    for (std::size_t d = 0; d < to.size(); ++d) {
      const bool own = state.is_batched() && static_cast<int>(d) == state.dim;
      if (own && (to[d] != at || state.rows == BatchRows::numbers || state.outer != 1 ||
                  state.inner != 1)) {
        return call.unknown(kBySamples);
      }
      if (!own && to[d] == at && !(call.value(id).shape[d] == Expr(1))) {
        return call.unknown(kBySamples);
      }
    }
  }
  return out;
}

bool is_indexed(const Indexing& indexing, int dim) {
  return indexing.indices[static_cast<std::size_t>(dim)].valid();
}

BatchState index_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  if (!x) return call.unknown(kNoRule);
  const auto inputs = call.graph().inputs_of(call.id());
  if (const BatchState* lost = first_lost(call, {inputs.begin(), inputs.end()})) return *lost;
  const auto indexing = read_indexing(call, *x);
  if (!indexing) {
    const bool fixed = std::all_of(inputs.begin(), inputs.end(),
                                   [&](ValueId id) { return call.state(id).is_fixed(); });
    return fixed ? held_to_shape(call, result, {}) : call.unknown(kBySamples);
  }
  if (call.state(*x).is_batched() && is_indexed(*indexing, call.state(*x).dim)) {
    return held_to_shape(call, result, own_row(call, *x, *indexing));
  }
  std::vector<Operand> operands{{*x, indexing->kept_to}};
  for (int& to : operands[0].to) to = to < 0 ? kNotFollowed : to;
  for (const ValueId id : indexing->indices) {
    if (id.valid()) operands.push_back({id, indexing->to_of_index(call.rank(id))});
  }
  return carry(call, operands, result);
}

// x[mask] = number, element by element.
BatchState put_by_mask(const Call& call, ValueId x, ValueId mask, ValueId values, ValueId result) {
  const Sizes& shape = call.value(values).shape;
  const bool one =
      std::all_of(shape.begin(), shape.end(), [](const Expr& size) { return size == Expr(1); });
  if (!one || call.value(mask).dtype != DType::boolean) return call.unknown(kBySamples);
  // A mask has no size of one that would stand for all: it covers the dimensions it has.
  if (call.state(x).is_batched() != call.state(mask).is_batched() &&
      !(call.state(x).is_batched() && call.rank(mask) <= call.state(x).dim)) {
    return call.unknown(kBySamples);
  }
  return carry(call, {{x, straight(call.rank(x))}, {mask, straight(call.rank(mask))}, {values, {}}},
               result);
}

// Are the values one number for all samples, or do they stand in dimension `at` as samples do?
bool values_follow(const Call& call, ValueId values, const Indexing& indexing, int at) {
  const BatchState& state = call.state(values);
  const std::vector<int> to = aligned(call.rank(values), indexing.result_rank);
  for (std::size_t d = 0; d < to.size(); ++d) {
    const bool own = state.is_batched() && static_cast<int>(d) == state.dim;
    if (own &&
        (to[d] != at || state.outer != 1 || state.inner != 1 || state.rows == BatchRows::numbers)) {
      return false;
    }
    if (!own && to[d] == at && !(call.value(values).shape[d] == Expr(1))) return false;
  }
  return true;
}

// The dimensions of what is put, as dimensions of x.
std::vector<int> put_map(const Call& call, ValueId values, const Indexing& indexing) {
  std::vector<int> to = aligned(call.rank(values), indexing.result_rank);
  for (int& t : to) {
    const auto kept = std::find(indexing.kept_to.begin(), indexing.kept_to.end(), t);
    t = t < 0 || kept == indexing.kept_to.end() ? kNotFollowed
                                                : static_cast<int>(kept - indexing.kept_to.begin());
  }
  return to;
}

BatchState index_put_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  const auto given = call.tensors(1, "indices");
  const auto values = call.tensor(2, "values");
  if (!x || !given || !values) return call.unknown(kNoRule);
  const auto inputs = call.graph().inputs_of(call.id());
  if (const BatchState* lost = first_lost(call, {inputs.begin(), inputs.end()})) return *lost;
  const auto indexing = read_indexing(call, *x);
  if (!indexing) {
    const bool mask = given->size() == 1 && (*given)[0].valid();
    return mask ? put_by_mask(call, *x, (*given)[0], *values, result) : call.unknown(kNoRule);
  }
  if (call.state(*x).is_batched() && is_indexed(*indexing, call.state(*x).dim)) {
    const BatchState picked = own_row(call, *x, *indexing);
    if (picked.is_lost()) return picked;
    if (!values_follow(call, *values, *indexing, picked.dim)) return call.unknown(kBySamples);
    return held_to_shape(call, result, BatchState::batched(call.state(*x).dim, 1, 1));
  }
  std::vector<Operand> operands{{*x, straight(call.rank(*x))},
                                {*values, put_map(call, *values, *indexing)}};
  for (const ValueId id : indexing->indices) {
    if (id.valid()) operands.push_back({id, {}});
  }
  return carry(call, operands, result);
}

std::optional<int> dim_argument(const Call& call, int rank) {
  const auto named = call.integer(1, "dim");
  return named ? Call::dimension(*named, rank) : std::nullopt;
}

BatchState index_select_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  const auto index = call.tensor(2, "index");
  const auto dim = x ? dim_argument(call, call.rank(*x)) : std::nullopt;
  if (!x || !index || !dim || call.rank(*index) > 1) return call.unknown(kNoRule);
  const BatchState& from = call.state(*x);
  if (from.is_batched() && from.dim == *dim && call.state(*index).is_fixed()) {
    return call.mixed(kByNumber);
  }
  std::vector<int> to = straight(call.rank(*x));
  to[static_cast<std::size_t>(*dim)] = kNotFollowed;
  return carry(call, {{*x, to}, {*index, {*dim}}}, result);
}

// gather and scatter do not broadcast: index number b reads and writes row b alone, so all tensors
// must be batched in one place, or none.
BatchState by_rows_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  const auto index = call.tensor(2, "index");
  const auto dim = x ? dim_argument(call, call.rank(*x)) : std::nullopt;
  if (!x || !index || !dim || call.rank(*index) != call.rank(*x)) return call.unknown(kNoRule);
  const auto inputs = call.graph().inputs_of(call.id());
  if (const BatchState* lost = first_lost(call, {inputs.begin(), inputs.end()})) return *lost;
  std::vector<int> to = straight(call.rank(*x));
  to[static_cast<std::size_t>(*dim)] = kNotFollowed;
  std::vector<Operand> operands;
  std::size_t batched = 0;
  for (const ValueId id : inputs) {
    const bool number = call.rank(id) == 0;
    if (!number && call.rank(id) != call.rank(*x)) return call.unknown(kNoRule);
    batched += call.state(id).is_batched() ? 1U : 0U;
    operands.push_back({id, number ? std::vector<int>() : to});
  }
  const bool alike = std::all_of(inputs.begin(), inputs.end(), [&](ValueId id) {
    return call.rank(id) == 0 || call.state(id).is_batched() == (batched > 0);
  });
  if (alike) return carry(call, operands, result);
  const bool picks = operator_name(call.node().op) == "gather";
  // gather(table, dim, index) with samples along dim: as a look-up.
  if (picks && call.state(*x).is_fixed() && call.state(*index).dim == *dim) {
    return carry(call, {{*index, straight(call.rank(*index))}}, result);
  }
  return call.unknown(kBySamples);
}

// index_add(x, dim, index, source), index_copy, index_fill
BatchState index_add_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  const auto dim = x ? dim_argument(call, call.rank(*x)) : std::nullopt;
  if (!x || !dim) return call.unknown(kNoRule);
  std::vector<int> to = straight(call.rank(*x));
  to[static_cast<std::size_t>(*dim)] = kNotFollowed;
  std::vector<Operand> operands{{*x, to}};
  if (const auto index = call.tensor(2, "index")) operands.push_back({*index, {}});
  for (const std::string_view name : {"source", "value"}) {
    const auto source = call.tensor(3, name);
    if (!source) continue;
    const bool whole = call.rank(*source) == call.rank(*x);
    operands.push_back({*source, whole ? to : std::vector<int>()});
    break;
  }
  return carry(call, operands, result);
}

BatchState embedding_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto table = call.tensor(0, "weight");
  const auto indices = call.tensor(1, "indices");
  if (!table || !indices) return call.unknown(kNoRule);
  return carry(call, {{*table, {}}, {*indices, straight(call.rank(*indices))}}, result);
}

BatchState one_hot_rule(const Call& call, ValueId result, std::size_t /*position*/) {
  const auto x = call.tensor(0, "self");
  if (!x) return call.unknown(kNoRule);
  if (call.integer(1, "num_classes").value_or(-1) < 0 && !call.state(*x).is_fixed()) {
    return call.mixed("counts classes across the samples");
  }
  return carry(call, {{*x, straight(call.rank(*x))}}, result);
}

}  // namespace

void add_index_rules(BatchRules& rules) {
  rules.add({"index", "_unsafe_index"}, index_rule);
  rules.add({"index_put", "_unsafe_index_put"}, index_put_rule);
  rules.add({"index_select"}, index_select_rule);
  rules.add({"gather", "scatter", "scatter_add", "scatter_reduce"}, by_rows_rule);
  rules.add({"index_add", "index_copy", "index_fill"}, index_add_rule);
  rules.add({"embedding"}, embedding_rule);
  rules.add({"one_hot"}, one_hot_rule);
}

}  // namespace kerf
