// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Disjoint sets of 0 .. count - 1 that only ever grow together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace kerf {

// Paths are halved as they are walked; sets are not ranked, so that the caller says who stays root.
class UnionFind {
 public:
  explicit UnionFind(std::size_t count) : parent_(count), num_sets_(count) {
    std::iota(parent_.begin(), parent_.end(), 0U);
  }

  std::size_t size() const { return parent_.size(); }
  std::size_t num_sets() const { return num_sets_; }
  // The root of its set.
  std::uint32_t find(std::uint32_t member) {
    while (parent_[member] != member) member = parent_[member] = parent_[parent_[member]];
    return member;
  }
  // b's set joins a's, whose root stays. False: they were one.
  bool join_to(std::uint32_t a, std::uint32_t b) {
    a = find(a);
    b = find(b);
    if (a == b) return false;
    parent_[b] = a;
    --num_sets_;
    return true;
  }
  // The lesser root stays: where all joins are these, roots are the least of their sets.
  bool join(std::uint32_t a, std::uint32_t b) {
    a = find(a);
    b = find(b);
    return join_to(std::min(a, b), std::max(a, b));
  }
  // By member, its set; sets are numbered from 0 in the order of their first members.
  template <class Number = std::uint32_t>
  std::vector<Number> numbers() {
    constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);
    std::vector<std::uint32_t> of_root(parent_.size(), kNone);
    std::vector<Number> out;
    out.reserve(parent_.size());
    std::uint32_t next = 0;
    for (std::uint32_t m = 0; m < parent_.size(); ++m) {
      std::uint32_t& number = of_root[find(m)];
      if (number == kNone) number = next++;
      out.push_back(Number{number});
    }
    return out;
  }

 private:
  std::vector<std::uint32_t> parent_;
  std::size_t num_sets_;
};

}  // namespace kerf
