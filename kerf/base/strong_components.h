// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Vertices that lead to each other, by Tarjan (1972), without recursion: graphs are as deep as
// models are long. O(vertices + edges).
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kerf/base/rows.h"

namespace kerf {

namespace detail {

template <class Index>
class StrongComponents {
 public:
  explicit StrongComponents(const RowsOf<Index, Index>& successors)
      : successors_(successors),
        number_(successors.size(), 0),
        low_(number_),
        next_(number_),
        component_(successors.size()),
        open_(successors.size(), false) {}

  std::vector<Index> run() {
    for (Index start{0}; start < number_.size(); ++start) {
      if (number_[start] == 0) enter(start);
      while (!path_.empty()) advance(path_.back());
    }
    return std::move(component_);
  }

 private:
  void enter(Index vertex) {
    number_[vertex] = low_[vertex] = ++last_number_;
    open_[vertex] = true;
    pending_.push_back(vertex);
    path_.push_back(vertex);
  }
  void advance(Index vertex) {
    if (next_[vertex] == successors_.length(vertex)) return leave(vertex);
    const Index to = successors_[vertex][next_[vertex]++];
    if (number_[to] == 0) {
      enter(to);
    } else if (open_[to]) {
      low_[vertex] = std::min(low_[vertex], number_[to]);
    }
  }
  void leave(Index vertex) {
    path_.pop_back();
    if (!path_.empty()) low_[path_.back()] = std::min(low_[path_.back()], low_[vertex]);
    if (low_[vertex] != number_[vertex]) return;
    for (bool done = false; !done; pending_.pop_back()) {
      done = pending_.back() == vertex;
      open_[pending_.back()] = false;
      component_[pending_.back()] = vertex;
    }
  }

  const RowsOf<Index, Index>& successors_;
  std::vector<std::uint32_t> number_;  // order of discovery, from 1
  std::vector<std::uint32_t> low_;
  std::vector<std::uint32_t> next_;  // edge to look at
  std::vector<Index> component_;
  std::vector<bool> open_;
  std::vector<Index> pending_;
  std::vector<Index> path_;
  std::uint32_t last_number_ = 0;
};

}  // namespace detail

// By vertex, a vertex that stands for its component: the same for all of one component, and one of
// them.
template <class Index>
std::vector<Index> strong_components(const RowsOf<Index, Index>& successors) {
  return detail::StrongComponents<Index>(successors).run();
}

}  // namespace kerf
