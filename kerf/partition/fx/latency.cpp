// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Longest paths in one pass. Sums are taken from the start of a path to its end, as the original
// does on each path in turn, and rounding is monotone: the largest sum is the same to the last bit.
#include <algorithm>
#include <iterator>

#include "kerf/base/error.h"
#include "kerf/base/sort_unique.h"
#include "kerf/partition/fx/original_error.h"
#include "kerf/partition/fx/partition.h"

namespace kerf::partition::fx {
namespace {

bool missing_latency(const OpNode& node) {
  return node.mem_latency != node.mem_latency || node.computer_latency != node.computer_latency;
}

// Its arrays are by node and stay clean between sets: a set takes the time of its own nodes.
class LongestPath {
 public:
  explicit LongestPath(const OpGraph& graph)
      : graph_(graph), inside_(graph.num_nodes()), steps_(graph.num_nodes()) {}

  Latency of(std::span<const OpIndex> nodes) {
    for (const OpIndex n : nodes) {
      inside_[n] = !graph_.node(n).leaf;  // a path starts behind the leaves
      if (inside_[n]) order_.push_back(n);
    }
    std::sort(order_.begin(), order_.end());
    Latency latency;
    latency.overall = largest_sum(nodes);
    if (latency.overall > 0) add_first_path(nodes, latency);
    for (const OpIndex n : order_) {
      inside_[n] = false;
      steps_[n] = {};
    }
    order_.clear();
    return latency;
  }

 private:
  struct Step {
    double overall = 0;  // largest sum of a path that ends here
    bool best = false;   // on a path that reaches the largest sum of all
  };

  bool any_inside(std::span<const OpIndex> nodes) const {
    return std::any_of(nodes.begin(), nodes.end(), [&](OpIndex n) { return inside_[n]; });
  }
  bool is_top(OpIndex n) const { return inside_[n] && !any_inside(graph_.inputs(n)); }
  // Does the user's largest sum come from this node?
  bool leads_to(OpIndex n, OpIndex user) const {
    return inside_[user] && steps_[user].best &&
           steps_[n].overall + graph_.node(user).latency() == steps_[user].overall;
  }

  double largest_sum(std::span<const OpIndex> nodes) {
    double largest = 0;
    for (const OpIndex n : order_) {
      double before = 0;
      bool first = true;
      for (const OpIndex input : graph_.inputs(n)) {
        if (!inside_[input]) continue;
        before = first ? steps_[input].overall : std::max(before, steps_[input].overall);
        first = false;
      }
      if (missing_latency(graph_.node(n))) report_missing(nodes);
      steps_[n].overall = before + graph_.node(n).latency();
      if (!any_inside(graph_.users(n))) largest = std::max(largest, steps_[n].overall);
    }
    // Backwards: which nodes lie on a path of the largest sum, entered at their own largest sum.
    for (auto n = order_.rbegin(); n != order_.rend(); ++n) {
      const auto users = graph_.users(*n);
      steps_[*n].best = any_inside(users)
                            ? std::any_of(users.begin(), users.end(),
                                          [&](OpIndex user) { return leads_to(*n, user); })
                            : steps_[*n].overall == largest;
    }
    return largest;
  }

  // The first path of the largest sum in the order of nodes, then of users.
  void add_first_path(std::span<const OpIndex> nodes, Latency& latency) const {
    const auto start = std::find_if(nodes.begin(), nodes.end(),
                                    [&](OpIndex n) { return steps_[n].best && is_top(n); });
    if (start == nodes.end()) return;
    for (OpIndex at = *start;;) {
      latency.mem += graph_.node(at).mem_latency;
      latency.computer += graph_.node(at).computer_latency;
      const auto users = graph_.users(at);
      const auto next = std::find_if(users.begin(), users.end(),
                                     [&](OpIndex user) { return leads_to(at, user); });
      if (next == users.end()) return;
      at = *next;
    }
  }

  // The original walks paths depth first, from the first top node: that is where it misses one.
  [[noreturn]] void report_missing(std::span<const OpIndex> nodes) const {
    std::vector<bool> seen(graph_.num_nodes());
    for (const OpIndex start : nodes) {
      std::vector<OpIndex> stack;
      if (is_top(start)) stack.push_back(start);
      while (!stack.empty()) {
        const OpIndex n = stack.back();
        stack.pop_back();
        if (seen[n]) continue;
        seen[n] = true;
        if (missing_latency(graph_.node(n))) {
          throw OriginalError(OriginalError::Kind::key_node, graph_.node(n).name, n);
        }
        const auto users = graph_.users(n);
        std::copy_if(users.rbegin(), users.rend(), std::back_inserter(stack),
                     [&](OpIndex user) { return inside_[user]; });
      }
    }
    KERF_CHECK(false, "no latency is missing");
  }

  const OpGraph& graph_;
  std::vector<bool> inside_;    // the set's ops
  std::vector<OpIndex> order_;  // they alone, ascending
  std::vector<Step> steps_;
};

}  // namespace

Latency partition_latency(const OpGraph& graph, std::span<const OpIndex> nodes) {
  return LongestPath(graph).of(nodes);
}

std::vector<double> latencies(const OpGraph& graph, std::span<const Partition> partitions) {
  LongestPath path(graph);
  std::vector<double> out;
  for (const Partition& partition : partitions) out.push_back(path.of(partition.nodes).overall);
  return out;
}

double comm_latency(const OpGraph& graph, const Partition& parent, const Partition& child,
                    double rate) {
  if (!parent.device_ids.empty() && parent.device_ids == child.device_ids) return 0;
  std::vector<OpIndex> read;
  for (const OpIndex n : child.nodes) {
    read.insert(read.end(), graph.inputs(n).begin(), graph.inputs(n).end());
  }
  sort_unique(read);
  std::int64_t bytes = 0;
  for (const OpIndex n : parent.nodes) {
    const std::int64_t size = graph.node(n).output_size;
    if (size != kNoSize && std::binary_search(read.begin(), read.end(), n)) bytes += size;
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
