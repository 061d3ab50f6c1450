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

ReachedOrder reached_order(std::span<const Partition> partitions) {
  std::vector<std::size_t> waiting(partitions.size());
  std::vector<bool> reached(partitions.size());
  std::vector<std::size_t> found;
  const auto reach = [&](std::size_t p) {
    if (!reached[p]) found.push_back(p);
    reached[p] = true;
  };
  for (std::size_t p = 0; p < partitions.size(); ++p) {
    if (partitions[p].parents.empty()) reach(p);
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const std::size_t child : partitions[found[i]].children) {
      ++waiting[child];
      reach(child);
    }
  }
  ReachedOrder out;
  for (const std::size_t p : found) {
    if (waiting[p] == 0) out.order.push_back(p);
  }
  for (std::size_t i = 0; i < out.order.size(); ++i) {
    for (const std::size_t child : partitions[out.order[i]].children) {
      if (--waiting[child] == 0) out.order.push_back(child);
    }
  }
  out.cyclic = out.order.size() < found.size();
  return out;
}

void set_levels(std::vector<Partition>& partitions) {
  const ReachedOrder reached = reached_order(partitions);
  if (reached.cyclic) {
    throw OriginalError(OriginalError::Kind::endless, "the partitions depend on each other");
  }
  std::vector<std::int64_t> level(partitions.size(), 0);
  for (const std::size_t p : reached.order) {
    partitions[p].level = level[p];
    for (const std::size_t child : partitions[p].children) {
      level[child] = std::max(level[child], level[p] + 1);
    }
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
