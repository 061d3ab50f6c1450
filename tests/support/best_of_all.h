// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The reference of the planners' tests: an enumeration that goes through make_plan and nothing of
// theirs. What is placed and how a placement becomes stages is written here again, from the
// contract in partition/raise/form_stages.h: simply, for a handful of nodes.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "kerf/simulate/make_plan.h"

namespace kerf {

class BestOfAll {
 public:
  explicit BestOfAll(const Problem& problem) : problem_(problem) { find_pieces(); }

  // The least objective of all ways to place the pieces; nothing when none fits.
  std::optional<double> run() {
    const std::size_t devices = problem_.cluster.num_devices();
    device_.assign(pieces_.size(), 0);
    do {
      judge(few_stages());
      judge(short_stages());
    } while (next_placement(devices));
    return best_;
  }

 private:
  using Labels = std::vector<std::size_t>;  // by piece

  // Nodes that must share a stage, in an order in which they can run.
  struct Piece {
    std::vector<NodeId> nodes;
    std::set<std::size_t> before;  // pieces that it waits for
  };

  void find_pieces() {
    const Graph& graph = problem_.graph;
    Labels first(graph.num_nodes());  // by node: the first of its group
    for (std::size_t n = 0; n < first.size(); ++n) first[n] = n;
    for (const std::vector<NodeId>& group : graph.glued()) {
      for (const NodeId node : group) first[node.index()] = group.front().index();
    }
    // Again and again the first group of which all that it waits for has its number.
    std::map<std::size_t, std::size_t> number;
    std::set<std::size_t> waiting(first.begin(), first.end());
    while (!waiting.empty()) {
      const auto next = std::find_if(waiting.begin(), waiting.end(), [&](std::size_t group) {
        const std::set<std::size_t> before = groups_before(first, group);
        return std::all_of(before.begin(), before.end(),
                           [&](std::size_t other) { return number.contains(other); });
      });
      Piece& piece = pieces_.emplace_back();
      for (std::size_t n = 0; n < first.size(); ++n) {
        if (first[n] == *next) piece.nodes.emplace_back(n);
      }
      for (const std::size_t other : groups_before(first, *next)) {
        piece.before.insert(number[other]);
      }
      number[*next] = pieces_.size() - 1;
      waiting.erase(next);
    }
  }

  std::set<std::size_t> groups_before(const Labels& first, std::size_t group) const {
    std::set<std::size_t> before;
    for (std::size_t n = 0; n < first.size(); ++n) {
      if (first[n] != group) continue;
      for (const NodeId node : problem_.graph.predecessors(NodeId{n})) {
        before.insert(first[node.index()]);
      }
    }
    before.erase(group);
    return before;
  }

  bool next_placement(std::size_t devices) {
    for (std::size_t& device : device_) {
      if (++device < devices) return true;
      device = 0;
    }
    return false;
  }

  bool is_acyclic(const Labels& stage) const {
    std::set<std::pair<std::size_t, std::size_t>> edges;
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      for (const std::size_t before : pieces_[p].before) {
        if (stage[before] != stage[p]) edges.emplace(stage[before], stage[p]);
      }
    }
    std::set<std::size_t> left(stage.begin(), stage.end());
    for (bool moved = true; moved;) {
      moved = false;
      for (const std::size_t s : std::vector<std::size_t>(left.begin(), left.end())) {
        if (std::any_of(edges.begin(), edges.end(), [&](auto& edge) { return edge.second == s; })) {
          continue;
        }
        left.erase(s);
        std::erase_if(edges, [&](auto& edge) { return edge.first == s; });
        moved = true;
      }
    }
    return left.empty();
  }

  // A stage for each device; where those would wait for each other, one for each number of times
  // that paths to it have changed devices, and then neighbours joined that make no cycle.
  Labels few_stages() const {
    if (is_acyclic(device_)) return device_;
    const std::size_t count = pieces_.size();
    Labels crossings(count);
    Labels stage(count);
    for (std::size_t p = 0; p < count; ++p) {
      for (const std::size_t before : pieces_[p].before) {
        const std::size_t crosses = device_[before] != device_[p] ? 1 : 0;
        crossings[p] = std::max(crossings[p], crossings[before] + crosses);
      }
      stage[p] = device_[p] * count + crossings[p];
    }
    const std::set<std::size_t> all(stage.begin(), stage.end());
    std::size_t last = *all.begin();
    for (const std::size_t next : all) {
      if (next == last) continue;
      Labels joined = stage;
      std::replace(joined.begin(), joined.end(), next, last);
      if (next / count == last / count && is_acyclic(joined)) {
        stage = std::move(joined);
      } else {
        last = next;
      }
    }
    return stage;
  }

  // A device's pieces in order, cut before each that needs another device's and after each that
  // another device needs.
  Labels short_stages() const {
    constexpr auto kClosed = std::numeric_limits<std::size_t>::max();
    const std::size_t count = pieces_.size();
    std::vector<bool> sends(count);
    std::vector<bool> receives(count);
    for (std::size_t p = 0; p < count; ++p) {
      for (const std::size_t before : pieces_[p].before) {
        if (device_[before] == device_[p]) continue;
        sends[before] = receives[p] = true;
      }
    }
    Labels open(problem_.cluster.num_devices(), kClosed);
    Labels stage(count);
    for (std::size_t p = 0; p < count; ++p) {
      std::size_t& own = open[device_[p]];
      if (receives[p] || own == kClosed) own = p;
      stage[p] = own;
      if (sends[p]) own = kClosed;
    }
    return stage;
  }

  void judge(const Labels& stage_of) {
    std::map<std::size_t, std::size_t> number;
    std::vector<std::vector<NodeId>> stages;
    std::vector<DeviceId> devices;
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      if (number.try_emplace(stage_of[p], stages.size()).second) {
        stages.emplace_back();
        devices.emplace_back(device_[p]);
      }
      std::vector<NodeId>& nodes = stages[number[stage_of[p]]];
      nodes.insert(nodes.end(), pieces_[p].nodes.begin(), pieces_[p].nodes.end());
    }
    const Plan plan = make_plan(problem_, std::move(stages), std::move(devices), "all");
    for (const DeviceMemory& memory : plan.memory) {
      if (memory.limited && memory.predicted > memory.limit) return;
    }
    best_ = std::min(best_.value_or(plan.objective_value()), plan.objective_value());
  }

  const Problem& problem_;
  std::vector<Piece> pieces_;
  Labels device_;
  std::optional<double> best_;
};

inline std::optional<double> best_of_all(const Problem& problem) {
  return BestOfAll(problem).run();
}

}  // namespace kerf
