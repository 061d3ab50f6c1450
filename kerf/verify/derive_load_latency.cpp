// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/derive_load_latency.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace kerf::derive {
namespace {

using Edges = std::vector<std::vector<std::size_t>>;  // by node: those that come after it

// Each after all that come before it; shorter than `edges` when they make a circle.
std::vector<std::size_t> order_of(const Edges& edges) {
  std::vector<std::size_t> waits(edges.size());
  for (const std::vector<std::size_t>& next : edges) {
    for (const std::size_t n : next) ++waits[n];
  }
  std::vector<std::size_t> order;
  for (std::size_t n = 0; n < edges.size(); ++n) {
    if (waits[n] == 0) order.push_back(n);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    for (const std::size_t n : edges[order[i]]) {
      if (--waits[n] == 0) order.push_back(n);
    }
  }
  return order;
}

class SampleWalk {
 public:
  SampleWalk(const LoadProblem& problem, std::span<const SlotId> device)
      : problem_(problem), device_(device) {}

  double run(bool serial) {
    number_groups();
    add_times();
    if (serial) chain_pieces();
    const std::vector<std::size_t> order = order_of(after_);
    if (order.size() < after_.size()) return std::numeric_limits<double>::infinity();
    std::vector<double> start(after_.size());
    double latency = 0;
    for (const std::size_t g : order) {
      const double end = start[g] + time_[g];
      latency = std::max(latency, end);
      for (const std::size_t next : after_[g]) start[next] = std::max(start[next], end);
    }
    return latency;
  }

 private:
  bool on_cpu(std::size_t node) const { return device_[node] == problem_.cpu(); }

  // How often a path to each node of an accelerator has left it and come back, at most. For nodes
  // elsewhere: how often it will have, once it comes back.
  std::vector<std::size_t> returns_to(std::uint32_t accelerator,
                                      const std::vector<std::size_t>& order) const {
    std::vector<std::size_t> returns(device_.size());
    for (const std::size_t n : order) {
      for (const std::uint32_t next : problem_.successors[n]) {
        const bool leaves = device_[n] == accelerator && device_[next] != accelerator;
        returns[next] = std::max(returns[next], returns[n] + (leaves ? 1 : 0));
      }
    }
    return returns;
  }

  // A node on a CPU is a group by itself. Those of an accelerator with as many returns are a piece.
  void number_groups() {
    Edges edges;
    for (const auto& next : problem_.successors) edges.emplace_back(next.begin(), next.end());
    const std::vector<std::size_t> order = order_of(edges);
    group_.resize(device_.size());
    std::size_t count = 0;
    for (std::size_t n = 0; n < device_.size(); ++n) {
      if (on_cpu(n)) group_[n] = count++;
    }
    for (std::uint32_t d = 0; d < problem_.cpu(); ++d) {
      const std::vector<std::size_t> returns = returns_to(d, order);
      std::map<std::size_t, std::size_t>& pieces = pieces_.emplace_back();
      for (std::size_t n = 0; n < device_.size(); ++n) {
        if (device_[n] != d) continue;
        const auto [found, fresh] = pieces.try_emplace(returns[n], count);
        count += fresh ? 1 : 0;
        group_[n] = found->second;
      }
    }
    after_.resize(count);
    time_.resize(count);
    on_cpu_.resize(count);
    for (std::size_t n = 0; n < device_.size(); ++n) on_cpu_[group_[n]] = on_cpu(n);
  }

  // What a group computes, and the tensors that an accelerator moves: out once, in once.
  void add_times() {
    for (std::size_t n = 0; n < device_.size(); ++n) {
      const LoadNode& node = problem_.nodes[n];
      const std::size_t own = group_[n];
      time_[own] += on_cpu(n) ? node.cpu_time : node.accelerator_time;
      std::set<std::size_t> readers;
      for (const std::uint32_t next : problem_.successors[n]) readers.insert(group_[next]);
      readers.erase(own);
      if (!readers.empty() && !on_cpu_[own]) time_[own] += node.transfer;
      for (const std::size_t reader : readers) {
        after_[own].push_back(reader);
        if (!on_cpu_[reader]) time_[reader] += node.transfer;
      }
    }
  }

  void chain_pieces() {
    for (const std::map<std::size_t, std::size_t>& pieces : pieces_) {
      for (auto next = pieces.begin(); next != pieces.end();) {
        const std::size_t before = next->second;
        if (++next != pieces.end()) after_[before].push_back(next->second);
      }
    }
  }

  const LoadProblem& problem_;
  std::span<const SlotId> device_;
  std::vector<std::size_t> group_;                          // by node
  std::vector<std::map<std::size_t, std::size_t>> pieces_;  // by accelerator: returns to group
  Edges after_;                                             // by group
  std::vector<double> time_;                                // by group
  std::vector<bool> on_cpu_;                                // by group
};

}  // namespace

double derive_load_latency(const LoadProblem& problem, std::span<const SlotId> device,
                           bool serial) {
  return SampleWalk(problem, device).run(serial);
}

}  // namespace kerf::derive
