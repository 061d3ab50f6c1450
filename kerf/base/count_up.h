// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <numeric>
#include <vector>

namespace kerf {

// 0 .. count - 1, as ids or plain numbers.
template <class Index>
std::vector<Index> count_up(std::size_t count) {
  std::vector<Index> out(count);
  std::iota(out.begin(), out.end(), Index{0});
  return out;
}

}  // namespace kerf
