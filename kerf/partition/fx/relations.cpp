// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kerf/partition/fx/original_error.h"
#include "kerf/partition/fx/partition.h"

namespace kerf::partition::fx {
namespace {

// Which partitions hold a node: leaves may be in several, and hand-made sets may overlap.
class Holders {
 public:
  Holders(const OpGraph& graph, std::span<const Partition> partitions)
      : begin_(graph.num_nodes() + 1) {
    for (const Partition& partition : partitions) {
      for (const OpIndex n : partition.nodes) ++begin_[n + 1];
    }
    for (std::size_t n = 0; n < graph.num_nodes(); ++n) begin_[n + 1] += begin_[n];
    holders_.resize(begin_.back());
    std::vector<std::size_t> next(begin_.begin(), begin_.end() - 1);
    for (std::size_t p = 0; p < partitions.size(); ++p) {
      for (const OpIndex n : partitions[p].nodes) holders_[next[n]++] = p;
    }
  }
  std::span<const std::size_t> of(OpIndex n) const {
    return {holders_.data() + begin_[n], holders_.data() + begin_[n + 1]};
  }
  bool holds(std::size_t partition, OpIndex n) const {
    const auto all = of(n);
    return std::binary_search(all.begin(), all.end(), partition);
  }

 private:
  std::vector<std::size_t> begin_;
  std::vector<std::size_t> holders_;
};

void sort_unique(std::vector<std::size_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

}  // namespace

void set_relations(const OpGraph& graph, std::vector<Partition>& partitions) {
  const Holders holders(graph, partitions);
  for (Partition& partition : partitions) {
    partition.parents.clear();
    partition.children.clear();
  }
  for (std::size_t p = 0; p < partitions.size(); ++p) {
    std::vector<std::size_t>& children = partitions[p].children;
    for (const OpIndex n : partitions[p].nodes) {
      for (const OpIndex user : graph.users(n)) {
        for (const std::size_t other : holders.of(user)) {
          if (other != p && !holders.holds(other, n)) children.push_back(other);
        }
      }
    }
    sort_unique(children);
    for (const std::size_t child : children) partitions[child].parents.push_back(p);
  }
}

void set_levels(std::vector<Partition>& partitions) {
  // Roots are those that know no parents. Hand-made relations may be one-sided: a root that is
  // somebody's child is reached later too, and its last round counts.
  std::vector<std::size_t> waiting(partitions.size());
  std::vector<bool> reached(partitions.size());
  std::vector<std::size_t> stack;
  std::size_t pending = 0;
  const auto reach = [&](std::size_t p) {
    if (reached[p]) return;
    reached[p] = true;
    ++pending;
    stack.push_back(p);
  };
  for (std::size_t p = 0; p < partitions.size(); ++p) {
    if (partitions[p].parents.empty()) reach(p);
  }
  while (!stack.empty()) {
    const std::size_t p = stack.back();
    stack.pop_back();
    for (const std::size_t child : partitions[p].children) {
      ++waiting[child];
      reach(child);
    }
  }
  for (std::size_t p = 0; p < partitions.size(); ++p) {
    if (reached[p] && waiting[p] == 0) stack.push_back(p);
  }
  std::vector<std::int64_t> level(partitions.size(), 0);
  while (!stack.empty()) {
    const std::size_t p = stack.back();
    stack.pop_back();
    --pending;
    partitions[p].level = level[p];
    for (const std::size_t child : partitions[p].children) {
      level[child] = std::max(level[child], level[p] + 1);
      if (--waiting[child] == 0) stack.push_back(child);
    }
  }
  if (pending != 0) {
    throw OriginalError(OriginalError::Kind::endless, "the partitions depend on each other");
  }
}

bool depends_on_itself(std::span<const Partition> partitions, std::size_t which) {
  std::vector<bool> seen(partitions.size());
  std::vector<std::size_t> stack{which};
  while (!stack.empty()) {
    const std::size_t p = stack.back();
    stack.pop_back();
    for (const std::size_t child : partitions[p].children) {
      if (child == which) return true;
      if (!seen[child]) {
        seen[child] = true;
        stack.push_back(child);
      }
    }
  }
  return false;
}

}  // namespace kerf::partition::fx
