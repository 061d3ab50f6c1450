// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Longest paths in one pass. Sums are taken from the start of a path to its end, as the original
// does on each path in turn, and rounding is monotone: the largest sum is the same to the last bit.
#include <algorithm>

#include "kerf/base/error.h"
#include "kerf/base/sort_unique.h"
#include "kerf/partition/fx/original_error.h"
#include "kerf/partition/fx/partition.h"

namespace kerf::partition::fx {
namespace {

// Follows the first user, in order, whose path reaches the largest sum.
struct PathStep {
  double overall = 0;  // largest sum of a path that ends here
  bool best = false;   // on a path that reaches the largest sum of all
};

bool missing_latency(const OpNode& node) {
  return node.mem_latency != node.mem_latency || node.computer_latency != node.computer_latency;
}

bool top(const OpGraph& graph, OpIndex n, const std::vector<bool>& inside) {
  return std::none_of(graph.inputs(n).begin(), graph.inputs(n).end(),
                      [&](OpIndex input) { return inside[input] && !graph.node(input).leaf; });
}

// The original walks paths depth first, from the first top node: that is where it misses one.
[[noreturn]] void report_missing(const OpGraph& graph, std::span<const OpIndex> nodes,
                                 const std::vector<bool>& inside) {
  std::vector<bool> seen(graph.num_nodes());
  for (const OpIndex start : nodes) {
    if (graph.node(start).leaf || !top(graph, start, inside)) continue;
    std::vector<OpIndex> stack{start};
    while (!stack.empty()) {
      const OpIndex n = stack.back();
      stack.pop_back();
      if (seen[n]) continue;
      seen[n] = true;
      if (missing_latency(graph.node(n))) {
        throw OriginalError(OriginalError::Kind::key_node, graph.node(n).name, n);
      }
      const auto users = graph.users(n);
      for (auto user = users.rbegin(); user != users.rend(); ++user) {
        if (inside[*user]) stack.push_back(*user);
      }
    }
  }
  KERF_CHECK(false, "no latency is missing");
}

}  // namespace

Latency partition_latency(const OpGraph& graph, std::span<const OpIndex> nodes) {
  std::vector<bool> inside(graph.num_nodes());
  std::vector<OpIndex> order;
  for (const OpIndex n : nodes) {
    inside[n] = true;
    if (!graph.node(n).leaf) order.push_back(n);
  }
  std::sort(order.begin(), order.end());
  std::vector<PathStep> steps(graph.num_nodes());
  double largest = 0;
  for (const OpIndex n : order) {
    double before = 0;
    bool first = true;
    for (const OpIndex input : graph.inputs(n)) {
      if (!inside[input] || graph.node(input).leaf) continue;
      before = first ? steps[input].overall : std::max(before, steps[input].overall);
      first = false;
    }
    if (missing_latency(graph.node(n))) report_missing(graph, nodes, inside);
    steps[n].overall = before + graph.node(n).latency();
    const bool bottom = std::none_of(graph.users(n).begin(), graph.users(n).end(),
                                     [&](OpIndex user) { return inside[user]; });
    if (bottom) largest = std::max(largest, steps[n].overall);
  }
  if (!(largest > 0)) return {};
  // Backwards: which nodes lie on a path of the largest sum, entered at their own largest sum.
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    bool bottom = true;
    for (const OpIndex user : graph.users(*it)) {
      if (!inside[user]) continue;
      bottom = false;
      steps[*it].best = steps[*it].best ||
                        (steps[user].best &&
                         steps[*it].overall + graph.node(user).latency() == steps[user].overall);
    }
    if (bottom) steps[*it].best = steps[*it].overall == largest;
  }
  // The first such path in the order of nodes, then of users.
  Latency latency;
  for (const OpIndex start : nodes) {
    if (graph.node(start).leaf || !steps[start].best || !top(graph, start, inside)) continue;
    for (OpIndex at = start;;) {
      latency.mem += graph.node(at).mem_latency;
      latency.computer += graph.node(at).computer_latency;
      const auto users = graph.users(at);
      const auto next = std::find_if(users.begin(), users.end(), [&](OpIndex user) {
        return inside[user] && steps[user].best &&
               steps[at].overall + graph.node(user).latency() == steps[user].overall;
      });
      if (next == users.end()) break;
      at = *next;
    }
    break;
  }
  latency.overall = largest;
  return latency;
}

double comm_latency(const OpGraph& graph, const Partition& parent, const Partition& child,
                    double rate) {
  if (!parent.device_ids.empty() && parent.device_ids == child.device_ids) return 0;
  std::vector<OpIndex> held = parent.nodes;
  std::sort(held.begin(), held.end());
  std::vector<OpIndex> read;
  for (const OpIndex n : child.nodes) {
    for (const OpIndex input : graph.inputs(n)) {
      if (std::binary_search(held.begin(), held.end(), input)) read.push_back(input);
    }
  }
  sort_unique(read);
  std::int64_t bytes = 0;
  for (const OpIndex n : read) {
    if (graph.node(n).output_size != kNoSize) bytes += graph.node(n).output_size;
  }
  if (rate == 0) {
    throw OriginalError(OriginalError::Kind::zero_division, "float division by zero");
  }
  return static_cast<double>(bytes) / rate;
}

double graph_latency(const OpGraph& graph, std::span<const Partition> partitions,
                     std::span<const double> overall, double rate) {
  const ReachedOrder reached = reached_order(partitions);
  std::vector<double> arrival(partitions.size(), 0);
  std::vector<bool> seen;  // it starts somewhere; hand-made figures may be negative
  for (const Partition& partition : partitions) seen.push_back(partition.parents.empty());
  double largest = 0;
  for (const std::size_t p : reached.order) {
    const double end = arrival[p] + overall[p];
    if (partitions[p].children.empty()) largest = std::max(largest, end);
    for (const std::size_t child : partitions[p].children) {
      const double there = end + comm_latency(graph, partitions[p], partitions[child], rate);
      arrival[child] = seen[child] ? std::max(arrival[child], there) : there;
      seen[child] = true;
    }
  }
  if (reached.cyclic) {
    throw OriginalError(OriginalError::Kind::recursion, "maximum recursion depth exceeded");
  }
  return largest;
}

}  // namespace kerf::partition::fx
