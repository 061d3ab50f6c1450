// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace kerf::place::ideals {

using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

// Rows of numbers, one after the other.
class Rows {
 public:
  Rows() = default;
  std::uint32_t size() const { return static_cast<std::uint32_t>(starts_.size() - 1); }
  std::span<const std::uint32_t> operator[](std::uint32_t row) const {
    return {values_.data() + starts_[row], values_.data() + starts_[row + 1]};
  }
  void append(std::span<const std::uint32_t> row) {
    values_.insert(values_.end(), row.begin(), row.end());
    starts_.push_back(static_cast<std::uint32_t>(values_.size()));
  }

 private:
  std::vector<std::uint32_t> starts_{0};
  std::vector<std::uint32_t> values_;
};

// Row a holds every b of a pair (a, b) once, ascending.
Rows to_rows(std::uint32_t num_rows, const Pairs& pairs);
// Row b holds every a whose row holds b, ascending.
Rows transpose(const Rows& rows, std::uint32_t num_rows);

}  // namespace kerf::place::ideals
