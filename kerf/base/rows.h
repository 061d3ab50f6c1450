// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Rows of numbers, one after the other in one array: the lists of a graph.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace kerf {

using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

class Rows {
 public:
  Rows() = default;
  std::uint32_t size() const { return static_cast<std::uint32_t>(starts_.size() - 1); }
  std::size_t num_values() const { return values_.size(); }
  std::span<const std::uint32_t> operator[](std::uint32_t row) const {
    return {values_.data() + starts_[row], values_.data() + starts_[row + 1]};
  }
  // Of a row's first value among all.
  std::uint32_t start(std::uint32_t row) const { return starts_[row]; }
  std::uint32_t length(std::uint32_t row) const { return starts_[row + 1] - starts_[row]; }
  void append(std::span<const std::uint32_t> row) {
    values_.insert(values_.end(), row.begin(), row.end());
    starts_.push_back(static_cast<std::uint32_t>(values_.size()));
  }

 private:
  friend Rows transpose(const Rows& rows, std::uint32_t num_rows);
  std::vector<std::uint32_t> starts_{0};
  std::vector<std::uint32_t> values_;
};

// Row a holds every b of a pair (a, b) once, ascending.
Rows to_rows(std::uint32_t num_rows, const Pairs& pairs);
// Row b holds every a whose row holds b, ascending. In linear time.
Rows transpose(const Rows& rows, std::uint32_t num_rows);

}  // namespace kerf
