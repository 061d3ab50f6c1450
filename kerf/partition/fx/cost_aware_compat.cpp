// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The original's agglomeration: every round tries every pair and merges the cheapest, the last of
// equals. Here each op is in one partition and leaves follow their readers, so that a try needs no
// sets: bytes between partitions are sums, and only the merged one is looked at closely.
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "kerf/base/error.h"
#include "kerf/base/infinity.h"
#include "kerf/base/sort_unique.h"
#include "kerf/partition/fx/compat.h"

namespace kerf::partition::fx::compat {
namespace {

std::vector<OpIndex> merged(const std::vector<OpIndex>& a, const std::vector<OpIndex>& b) {
  std::vector<OpIndex> out;
  out.reserve(a.size() + b.size());
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

// One round's view of the partitions, in list order.
struct Cell {
  std::vector<OpIndex> nodes;  // ascending
  std::vector<OpIndex> reads;  // ops of other partitions, ascending
  std::int64_t used_bytes = 0;
  double overall = 0;
  std::vector<std::size_t> children;
  std::vector<std::pair<std::size_t, std::int64_t>> fetched;  // from partition: bytes, each reader
};

class Round {
 public:
  Round(const Request& request, const std::vector<Partition>& partitions)
      : graph_(request.graph),
        devices_(request.devices),
        rate_(request.rate),
        partitions_(partitions),
        owner_(graph_.num_nodes(), partitions.size()),
        cells_(partitions.size()) {
    for (std::size_t p = 0; p < partitions.size(); ++p) {
      cells_[p].nodes = partitions[p].nodes;
      std::sort(cells_[p].nodes.begin(), cells_[p].nodes.end());
      for (const OpIndex n : cells_[p].nodes) {
        if (!graph_.node(n).leaf) owner_[n] = p;
      }
    }
    for (std::size_t p = 0; p < partitions.size(); ++p) fill(p);
    find_descendants();
    distinct_ = device_stats({}, devices_).distinct;
  }

  double cost() const {
    std::vector<double> overall;
    for (const Cell& cell : cells_) overall.push_back(cell.overall);
    return graph_latency(graph_, partitions_, overall, rate_);
  }

  double try_merge(std::size_t a, std::size_t b) {
    const bool near = std::abs(partitions_[a].level - partitions_[b].level) <= 1;
    if (!near && !has_child(a, b) && !has_child(b, a)) return kInfinity;
    if (makes_cycle(a, b)) return kInfinity;
    merge(a, b);
    if (!map()) return kInfinity;
    both_.overall = partition_latency(graph_, both_.nodes).overall;
    return longest_path();
  }

 private:
  void fill(std::size_t p) {
    Cell& cell = cells_[p];
    cell.used_bytes = partitions_[p].used_bytes;
    cell.overall = partition_latency(graph_, partitions_[p].nodes).overall;
    cell.children = partitions_[p].children;
    for (const OpIndex n : cell.nodes) {
      for (const OpIndex input : graph_.inputs(n)) {
        if (graph_.node(input).leaf || owner_[input] == p) continue;
        cell.reads.push_back(input);
        cell.fetched.emplace_back(owner_[input], graph_.node(input).output_size);
      }
    }
    sort_unique(cell.reads);
  }

  void find_descendants() {
    const std::size_t count = cells_.size();
    std::vector<std::size_t> by_level(count);
    std::iota(by_level.begin(), by_level.end(), 0U);
    std::stable_sort(by_level.begin(), by_level.end(), [&](std::size_t a, std::size_t b) {
      return partitions_[a].level > partitions_[b].level;
    });
    below_.assign(count, std::vector<bool>(count));
    for (const std::size_t p : by_level) {
      for (const std::size_t child : cells_[p].children) {
        below_[p][child] = true;
        for (std::size_t q = 0; q < count; ++q) {
          if (below_[child][q]) below_[p][q] = true;
        }
      }
    }
    order_ = std::vector<std::size_t>(by_level.rbegin(), by_level.rend());
  }

  bool has_child(std::size_t p, std::size_t q) const {
    return std::binary_search(cells_[p].children.begin(), cells_[p].children.end(), q);
  }
  // A path between them through a third one.
  bool makes_cycle(std::size_t a, std::size_t b) const {
    const auto around = [&](std::size_t from, std::size_t to) {
      return std::any_of(cells_[from].children.begin(), cells_[from].children.end(),
                         [&](std::size_t child) { return child != to && below_[child][to]; });
    };
    return around(a, b) || around(b, a);
  }

  void merge(std::size_t a, std::size_t b) {
    a_ = a;
    b_ = b;
    both_.nodes = merged(cells_[a].nodes, cells_[b].nodes);
    both_.reads.clear();
    both_.fetched.clear();
    both_.used_bytes = 0;
    for (const OpIndex n : both_.nodes) {
      both_.used_bytes += graph_.node(n).total_size;
      for (const OpIndex input : graph_.inputs(n)) {
        if (graph_.node(input).leaf || part(owner_[input]) == kBoth) continue;
        both_.used_bytes += graph_.node(input).output_size;
        both_.reads.push_back(input);
        both_.fetched.emplace_back(owner_[input], graph_.node(input).output_size);
      }
    }
    sort_unique(both_.reads);
  }

  static constexpr std::size_t kBoth = static_cast<std::size_t>(-1);
  std::size_t part(std::size_t p) const { return p == a_ || p == b_ ? kBoth : p; }
  const Cell& cell(std::size_t p) const { return p == kBoth ? both_ : cells_[p]; }

  // Best fit in list order, the merged one last. What a partition reads from its own device is
  // free.
  bool map() {
    const std::size_t count = distinct_.size();
    device_.assign(cells_.size(), count);
    device_of_both_ = count;
    left_.resize(count);
    order_of_devices_.resize(count);
    for (std::size_t d = 0; d < count; ++d) {
      left_[d] = devices_[distinct_[d]].memory;
      order_of_devices_[d] = d;
    }
    for (std::size_t p = 0; p < cells_.size(); ++p) {
      if (p != a_ && p != b_ && !place(p)) return false;
    }
    return place(kBoth);
  }
  bool place(std::size_t p) {
    const Cell& cell = this->cell(p);
    saved_.assign(distinct_.size() + 1, 0);
    for (const auto& [from, bytes] : cell.fetched) saved_[device_of(from)] += bytes;
    std::stable_sort(order_of_devices_.begin(), order_of_devices_.end(),
                     [&](std::size_t x, std::size_t y) { return left_[x] < left_[y]; });
    for (const std::size_t d : order_of_devices_) {
      const std::int64_t needed = cell.used_bytes - saved_[d];
      if (needed >= left_[d]) continue;
      left_[d] -= needed;
      (p == kBoth ? device_of_both_ : device_[p]) = d;
      return true;
    }
    return false;
  }
  std::size_t device_of(std::size_t p) const {
    return p == kBoth || p == a_ || p == b_ ? device_of_both_ : device_[p];
  }

  // The original compares ids, which devices may share.
  bool same_id(std::size_t a, std::size_t b) const {
    return devices_[distinct_[a]].id == devices_[distinct_[b]].id;
  }

  std::int64_t bytes_between(const Cell& parent, std::size_t parent_part, const Cell& child) const {
    std::int64_t bytes = 0;
    for (const OpIndex n : child.reads) {
      if (part(owner_[n]) == parent_part) bytes += graph_.node(n).output_size;
    }
    // Leaves that both hold count as sent.
    auto held = parent.nodes.begin();
    for (const OpIndex n : child.nodes) {
      if (!graph_.node(n).leaf) continue;
      held = std::lower_bound(held, parent.nodes.end(), n);
      if (held != parent.nodes.end() && *held == n) bytes += graph_.node(n).output_size;
    }
    return bytes;
  }

  // Ends on demand, with an explicit stack instead of recursion.
  double longest_path() {
    const std::size_t count = cells_.size();
    end_.assign(count + 1, 0);
    done_.assign(count + 1, false);
    stack_.clear();
    double largest = 0;
    const auto index = [&](std::size_t p) { return p == kBoth ? count : p; };
    for (const std::size_t start : order_) {
      stack_.push_back(part(start));
      while (!stack_.empty()) {
        const std::size_t p = stack_.back();
        if (done_[index(p)]) {
          stack_.pop_back();
          continue;
        }
        bool ready = true;
        double arrival = 0;
        const Cell& child = cell(p);
        for (const OpIndex n : child.reads) {
          const std::size_t parent = part(owner_[n]);
          if (!done_[index(parent)]) {
            stack_.push_back(parent);
            ready = false;
          }
        }
        if (!ready) continue;
        std::size_t last = p;
        for (const OpIndex n : child.reads) {
          const std::size_t parent = part(owner_[n]);
          if (parent == last) continue;
          last = parent;
          double comm = 0;
          if (!same_id(device_of(parent), device_of(p))) {
            comm = static_cast<double>(bytes_between(cell(parent), parent, child)) / rate_;
          }
          arrival = std::max(arrival, end_[index(parent)] + comm);
        }
        end_[index(p)] = arrival + child.overall;
        done_[index(p)] = true;
        largest = std::max(largest, end_[index(p)]);
        stack_.pop_back();
      }
    }
    return largest;
  }

  const OpGraph& graph_;
  std::span<const Device> devices_;
  double rate_;
  const std::vector<Partition>& partitions_;
  std::vector<std::size_t> owner_;  // of each op
  std::vector<Cell> cells_;
  std::vector<std::vector<bool>> below_;  // strict descendants
  std::vector<std::size_t> order_;        // by level
  std::vector<std::size_t> distinct_;     // devices

  std::size_t a_ = kBoth;
  std::size_t b_ = kBoth;
  Cell both_;
  std::vector<std::size_t> device_;  // of each partition, an index into distinct_
  std::size_t device_of_both_ = 0;
  std::vector<std::int64_t> left_;
  std::vector<std::size_t> order_of_devices_;
  std::vector<std::int64_t> saved_;
  std::vector<double> end_;
  std::vector<bool> done_;
  std::vector<std::size_t> stack_;
};

bool merge_cheapest(const Request& request, std::vector<Partition>& partitions) {
  bool found = false;
  std::size_t best_a = 0;
  std::size_t best_b = 0;
  {
    Round round(request, partitions);
    double cost = round.cost();
    if (partitions.size() == 1) return false;
    for (std::size_t a = 0; a + 1 < partitions.size(); ++a) {
      for (std::size_t b = a + 1; b < partitions.size(); ++b) {
        const double tried = round.try_merge(a, b);
        if (!(tried <= cost)) continue;
        found = true;
        best_a = a;
        best_b = b;
        cost = tried;
      }
    }
  }
  if (found) combine(request.graph, partitions, best_a, best_b);
  set_levels(partitions);
  for (Partition& partition : partitions) partition.device_ids.clear();
  map_to_devices(request.graph, partitions, request.devices, true);
  return found;
}

}  // namespace

Answer cost_aware(const Request& request) {
  Answer answer;
  for (const OpIndex n : request.graph.ops()) {
    Partition& alone = answer.partitions.emplace_back();
    alone.id = static_cast<std::int64_t>(answer.partitions.size() - 1);
    add_node(request.graph, alone.nodes, n);
    alone.used_bytes = used_bytes(request.graph, alone.nodes);
  }
  set_relations(request.graph, answer.partitions);
  set_levels(answer.partitions);
  while (merge_cheapest(request, answer.partitions)) {
  }
  reorganize(request.graph, answer.partitions);
  answer.node_to_partition = node_to_partition(request.graph, answer.partitions);
  return answer;
}

}  // namespace kerf::partition::fx::compat
