// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/rows.h"

#include <algorithm>
#include <numeric>

namespace kerf {

Rows to_rows(std::uint32_t num_rows, const Pairs& pairs) {
  std::vector<std::uint32_t> next(num_rows + std::size_t{1}, 0);
  for (const auto& [a, b] : pairs) ++next[a + std::size_t{1}];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<std::uint32_t> values(pairs.size());
  const std::vector<std::uint32_t> starts = next;
  for (const auto& [a, b] : pairs) values[next[a]++] = b;
  Rows out;
  for (std::uint32_t a = 0; a < num_rows; ++a) {
    const auto begin = values.begin() + starts[a];
    const auto end = values.begin() + starts[a + std::size_t{1}];
    std::sort(begin, end);
    out.append({begin, std::unique(begin, end)});
  }
  return out;
}

Rows transpose(const Rows& rows, std::uint32_t num_rows) {
  Rows out;
  out.starts_.assign(num_rows + std::size_t{1}, 0);
  for (const std::uint32_t b : rows.values_) ++out.starts_[b + std::size_t{1}];
  std::partial_sum(out.starts_.begin(), out.starts_.end(), out.starts_.begin());
  out.values_.resize(rows.values_.size());
  std::vector<std::uint32_t> next = out.starts_;
  for (std::uint32_t a = 0; a < rows.size(); ++a) {
    for (const std::uint32_t b : rows[a]) out.values_[next[b]++] = a;
  }
  return out;
}

}  // namespace kerf
