// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/strong_components.h"

#include <algorithm>

namespace kerf {
namespace {

class Walk {
 public:
  explicit Walk(const Rows& successors)
      : successors_(successors),
        number_(successors.size(), 0),
        low_(number_),
        next_(number_),
        component_(number_),
        open_(successors.size(), false) {}

  std::vector<std::uint32_t> run() {
    for (std::uint32_t start = 0; start < number_.size(); ++start) {
      if (number_[start] == 0) enter(start);
      while (!path_.empty()) advance(path_.back());
    }
    return std::move(component_);
  }

 private:
  void enter(std::uint32_t vertex) {
    number_[vertex] = low_[vertex] = ++last_number_;
    open_[vertex] = true;
    pending_.push_back(vertex);
    path_.push_back(vertex);
  }
  void advance(std::uint32_t vertex) {
    if (next_[vertex] == successors_.length(vertex)) return leave(vertex);
    const std::uint32_t to = successors_[vertex][next_[vertex]++];
    if (number_[to] == 0) {
      enter(to);
    } else if (open_[to]) {
      low_[vertex] = std::min(low_[vertex], number_[to]);
    }
  }
  void leave(std::uint32_t vertex) {
    path_.pop_back();
    if (!path_.empty()) low_[path_.back()] = std::min(low_[path_.back()], low_[vertex]);
    if (low_[vertex] != number_[vertex]) return;
    for (bool done = false; !done; pending_.pop_back()) {
      done = pending_.back() == vertex;
      open_[pending_.back()] = false;
      component_[pending_.back()] = vertex;
    }
  }

  const Rows& successors_;
  std::vector<std::uint32_t> number_;  // order of discovery, from 1
  std::vector<std::uint32_t> low_;
  std::vector<std::uint32_t> next_;  // edge to look at
  std::vector<std::uint32_t> component_;
  std::vector<bool> open_;
  std::vector<std::uint32_t> pending_;
  std::vector<std::uint32_t> path_;
  std::uint32_t last_number_ = 0;
};

}  // namespace

std::vector<std::uint32_t> strong_components(const Rows& successors) {
  return Walk(successors).run();
}

}  // namespace kerf
