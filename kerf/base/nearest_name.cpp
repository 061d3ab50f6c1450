// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The distance is that of Damerau (1964) and Levenshtein (1966), restricted to disjoint edits.
#include "kerf/base/nearest_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <vector>

namespace kerf {
namespace {

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

// Row i of the table holds the distances of the first i letters of `a` to the beginnings of `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) table[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) table[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = table[i - 1][j - 1] + (same_letter(a[i - 1], b[j - 1]) ? 0 : 1);
      table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, changed});
      const bool swapped =
          i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]);
      if (swapped) table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
    }
  }
  return table[a.size()][b.size()];
}

}  // namespace

std::string_view nearest_name(std::string_view word, std::span<const std::string> names) {
  std::string_view nearest;
  std::size_t least = word.size() + 1;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(word, name);
    if (distance >= least || 3 * distance > std::max(word.size(), name.size())) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

std::string nearest_name_hint(std::string_view word, std::span<const std::string> names) {
  const std::string_view nearest = nearest_name(word, names);
  return nearest.empty() ? std::string() : fmt::format("; did you mean '{}'?", nearest);
}

}  // namespace kerf
