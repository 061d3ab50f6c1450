// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Kahn's algorithm: every vertex after those that lead to it. Vertices on a cycle, and those behind
// one, are left out: the size of the answer tells. O(vertices + edges), and a logarithm where the
// least number goes first.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "kerf/base/rows.h"

namespace kerf {

// `each_next(v, visit)` calls visit(w) for every edge from v to w. Index: what v and w are.
template <class Index = std::uint32_t, class EachNext>
std::vector<std::uint32_t> count_before(std::uint32_t count, const EachNext& each_next) {
  std::vector<std::uint32_t> waiting(count, 0);
  for (Index v{0}; v < count; ++v) {
    each_next(v, [&](Index next) { ++waiting[next]; });
  }
  return waiting;
}

// Of those that may come next, the one that has waited longest.
template <class Index = std::uint32_t, class EachNext>
std::vector<Index> first_come_order(std::uint32_t count, const EachNext& each_next) {
  std::vector<std::uint32_t> waiting = count_before<Index>(count, each_next);
  std::vector<Index> order;
  order.reserve(count);
  for (Index v{0}; v < count; ++v) {
    if (waiting[v] == 0) order.push_back(v);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    each_next(order[i], [&](Index next) {
      if (--waiting[next] == 0) order.push_back(next);
    });
  }
  return order;
}

// Of those that may come next, the one with the least key(v), which must differ.
template <class Index = std::uint32_t, class EachNext, class Key>
std::vector<Index> least_first_order(std::uint32_t count, const EachNext& each_next,
                                     const Key& key) {
  using Entry = std::pair<decltype(key(Index{0})), Index>;
  std::vector<std::uint32_t> waiting = count_before<Index>(count, each_next);
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (Index v{0}; v < count; ++v) {
    if (waiting[v] == 0) ready.emplace(key(v), v);
  }
  std::vector<Index> order;
  order.reserve(count);
  while (!ready.empty()) {
    order.push_back(ready.top().second);
    ready.pop();
    each_next(order.back(), [&](Index next) {
      if (--waiting[next] == 0) ready.emplace(key(next), next);
    });
  }
  return order;
}

// For rows of successors.
template <class Index>
auto each_next_of(const RowsOf<Index, Index>& successors) {
  return [&successors](Index v, const auto& visit) {
    for (const Index next : successors[v]) visit(next);
  };
}
inline auto by_own_number() {
  return [](auto v) { return v; };
}

// The place of each vertex in an order of all.
template <class Index = std::uint32_t>
std::vector<std::uint32_t> places_in(const std::vector<Index>& order) {
  std::vector<std::uint32_t> place(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  return place;
}

}  // namespace kerf
