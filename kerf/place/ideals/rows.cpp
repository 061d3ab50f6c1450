// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/ideals/rows.h"

#include <algorithm>

namespace kerf::place::ideals {

Rows to_rows(std::uint32_t num_rows, const Pairs& pairs) {
  std::vector<std::uint32_t> next(num_rows + std::size_t{1}, 0);
  for (const auto& [a, b] : pairs) ++next[a + std::size_t{1}];
  for (std::uint32_t a = 0; a < num_rows; ++a) next[a + std::size_t{1}] += next[a];
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
  Pairs pairs;
  for (std::uint32_t a = 0; a < rows.size(); ++a) {
    for (const std::uint32_t b : rows[a]) pairs.emplace_back(b, a);
  }
  return to_rows(num_rows, pairs);
}

}  // namespace kerf::place::ideals
