// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Random cuts into stages, legal by a chosen set of rules. Shares no code with the library's own
// derivation: plain reachability over a small graph.
#pragma once

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/graph/graph.h"
#include "tests/graph/toy_run.h"

namespace kerf::toy {

struct Rules {
  bool order_edges = true;
  bool glue = true;
};

class Cutter {
 public:
  Cutter(const Graph& graph, Rules rules) : graph_(graph), group_(graph.num_nodes()) {
    std::iota(group_.begin(), group_.end(), 0U);
    for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
      for (const ValueId id : graph.inputs_of(NodeId(n))) {
        const Value& value = graph.value(id);
        if (value.origin == Origin::node) edges_.insert({value.producer, NodeId(n)});
      }
    }
    if (rules.order_edges) edges_.insert(graph.order_edges().begin(), graph.order_edges().end());
    if (!rules.glue) return;
    for (const auto& nodes : graph.glued()) {
      for (const NodeId id : nodes) merge(group_[nodes[0].index()], group_[id.index()]);
    }
  }

  // Merges groups that lie on a common cycle; returns whether there were any.
  bool close() {
    const std::size_t n = group_.size();
    std::vector<std::vector<bool>> reach(n, std::vector<bool>(n, false));
    for (const Edge& edge : edges_) {
      const std::size_t a = group_[edge.from.index()];
      const std::size_t b = group_[edge.to.index()];
      if (a != b) reach[a][b] = true;
    }
    for (std::size_t k = 0; k < n; ++k) {
      for (std::size_t i = 0; i < n; ++i) {
        if (!reach[i][k]) continue;
        for (std::size_t j = 0; j < n; ++j) reach[i][j] = reach[i][j] || reach[k][j];
      }
    }
    bool found = false;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (reach[i][j] && reach[j][i] && group_[i] != group_[j]) {
          merge(group_[i], group_[j]);
          found = true;
        }
      }
    }
    return found;
  }

  // Groups in a random topological order, cut into `count` pieces or fewer; nodes of a piece in a
  // random topological order. Every legal cut can come out.
  Stages cut(std::size_t count, Rng& rng) const {
    std::vector<std::uint32_t> rank(group_.size());
    const auto groups = draw(rng, group_);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      rank[groups[i]] = static_cast<std::uint32_t>(i);
    }
    std::vector<std::size_t> ends;
    for (std::size_t i = 1; i < count; ++i) ends.push_back(rng.below(groups.size() + 1));
    std::sort(ends.begin(), ends.end());
    std::vector<std::uint32_t> single(group_.size());
    std::iota(single.begin(), single.end(), 0U);
    Stages stages(count);
    for (const std::uint32_t node : draw(rng, single)) {
      const std::size_t at = rank[group_[node]];
      const auto stage = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin();
      stages[static_cast<std::size_t>(stage)].push_back(NodeId(node));
    }
    std::erase_if(stages, [](const auto& stage) { return stage.empty(); });
    return stages;
  }

 private:
  void merge(std::uint32_t a, std::uint32_t b) {
    std::replace(group_.begin(), group_.end(), std::max(a, b), std::min(a, b));
  }

  // A random topological order of the distinct entries of `group`.
  std::vector<std::uint32_t> draw(Rng& rng, const std::vector<std::uint32_t>& group) const {
    std::set<std::uint32_t> left(group.begin(), group.end());
    std::vector<std::uint32_t> out;
    while (!left.empty()) {
      std::set<std::uint32_t> ready = left;
      for (const Edge& edge : edges_) {
        const std::uint32_t from = group[edge.from.index()];
        const std::uint32_t to = group[edge.to.index()];
        if (from != to && left.contains(from)) ready.erase(to);
      }
      if (ready.empty()) throw std::logic_error("the groups form a cycle: close() first");
      out.push_back(
          *std::next(ready.begin(), static_cast<std::ptrdiff_t>(rng.below(ready.size()))));
      left.erase(out.back());
    }
    return out;
  }

  const Graph& graph_;
  std::vector<std::uint32_t> group_;
  std::set<Edge> edges_;
};

}  // namespace kerf::toy
