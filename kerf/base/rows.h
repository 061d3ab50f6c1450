// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Rows of numbers, one after the other in one array: the lists of a graph. Rows and values may be
// strong ids.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace kerf {

template <class Row, class Value>
class RowsOf {
 public:
  RowsOf() = default;
  std::uint32_t size() const { return static_cast<std::uint32_t>(starts_.size() - 1); }
  std::size_t num_values() const { return values_.size(); }
  std::span<const Value> operator[](Row row) const {
    return {values_.data() + starts_[row], values_.data() + starts_[row + 1]};
  }
  // Of a row's first value among all.
  std::uint32_t start(Row row) const { return starts_[row]; }
  std::uint32_t length(Row row) const { return starts_[row + 1] - starts_[row]; }
  void append(std::span<const Value> row) {
    values_.insert(values_.end(), row.begin(), row.end());
    starts_.push_back(static_cast<std::uint32_t>(values_.size()));
  }

 private:
  template <class A, class B>
  friend RowsOf<B, A> transpose(const RowsOf<A, B>& rows, std::uint32_t num_rows);
  std::vector<std::uint32_t> starts_{0};
  std::vector<Value> values_;
};
using Rows = RowsOf<std::uint32_t, std::uint32_t>;

template <class Row, class Value>
using PairsOf = std::vector<std::pair<Row, Value>>;
using Pairs = PairsOf<std::uint32_t, std::uint32_t>;

// Row a holds every b of a pair (a, b) once, ascending.
template <class Row = std::uint32_t, class Value = std::uint32_t>
RowsOf<Row, Value> to_rows(std::uint32_t num_rows, const PairsOf<Row, Value>& pairs) {
  std::vector<std::uint32_t> next(num_rows + std::size_t{1}, 0);
  for (const auto& [a, b] : pairs) ++next[a + std::size_t{1}];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<Value> values(pairs.size());
  const std::vector<std::uint32_t> starts = next;
  for (const auto& [a, b] : pairs) values[next[a]++] = b;
  RowsOf<Row, Value> out;
  for (std::uint32_t a = 0; a < num_rows; ++a) {
    const auto begin = values.begin() + starts[a];
    const auto end = values.begin() + starts[a + std::size_t{1}];
    std::sort(begin, end);
    out.append({begin, std::unique(begin, end)});
  }
  return out;
}

// Row b holds every a whose row holds b, ascending. In linear time.
template <class A, class B>
RowsOf<B, A> transpose(const RowsOf<A, B>& rows, std::uint32_t num_rows) {
  RowsOf<B, A> out;
  out.starts_.assign(num_rows + std::size_t{1}, 0);
  for (const B b : rows.values_) ++out.starts_[b + std::size_t{1}];
  std::partial_sum(out.starts_.begin(), out.starts_.end(), out.starts_.begin());
  out.values_.resize(rows.values_.size());
  std::vector<std::uint32_t> next = out.starts_;
  for (A a{0}; a < rows.size(); ++a) {
    for (const B b : rows[a]) out.values_[next[b]++] = a;
  }
  return out;
}

}  // namespace kerf
