// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/starts.h"

#include <algorithm>
#include <numeric>

#include "kerf/base/sort_unique.h"

namespace kerf::partition::fx {
namespace {

std::optional<Placement> if_it_fits(Placement placement) {
  if (!placement.fits()) return std::nullopt;
  return placement;
}

class Clusters {
 public:
  Clusters(const OpTable& table, std::span<const Device> devices)
      : table_(table), devices_(devices), root_(table.size()), members_(table.size()) {
    for (std::uint32_t op = 0; op < table.size(); ++op) {
      root_[op] = op;
      members_[op] = {op};
    }
  }

  void join(std::int64_t limit) {
    struct Candidate {
      double seconds;
      std::uint32_t from;
      std::uint32_t to;
    };
    std::vector<Candidate> edges;
    for (std::uint32_t op = 0; op < table_.size(); ++op) {
      for (const OpTable::Edge& edge : table_.in(op)) {
        edges.push_back({edge.seconds, edge.op, op});
      }
    }
    std::stable_sort(edges.begin(), edges.end(),
                     [](const Candidate& a, const Candidate& b) { return a.seconds > b.seconds; });
    for (const Candidate& edge : edges) {
      const std::uint32_t a = root_[edge.from];
      const std::uint32_t b = root_[edge.to];
      if (a == b || bytes(a, b) > limit) continue;
      for (const std::uint32_t op : members_[b]) root_[op] = a;
      members_[a].insert(members_[a].end(), members_[b].begin(), members_[b].end());
      members_[b].clear();
    }
  }

  std::optional<Placement> place() const {
    std::vector<std::uint32_t> roots;
    std::vector<std::int64_t> size(table_.size(), 0);
    for (std::uint32_t op = 0; op < table_.size(); ++op) {
      if (members_[op].empty()) continue;
      roots.push_back(op);
      size[op] = bytes(op, op);
    }
    std::stable_sort(roots.begin(), roots.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return size[a] > size[b]; });
    Placement placement(table_, devices_);
    for (const std::uint32_t root : roots) {
      if (!place(placement, members_[root])) return std::nullopt;
    }
    return placement;
  }

 private:
  // On the device with the dearest transfers to the cluster, of equals the fullest.
  bool place(Placement& placement, const std::vector<std::uint32_t>& members) const {
    std::vector<double> talk(devices_.size(), 0);
    for (const std::uint32_t op : members) {
      const auto count = [&](const OpTable::Edge& edge) {
        const std::uint32_t d = placement.device(edge.op);
        if (d != Placement::kNowhere) talk[d] += edge.seconds;
      };
      for (const OpTable::Edge& edge : table_.in(op)) count(edge);
      for (const OpTable::Edge& edge : table_.out(op)) count(edge);
    }
    std::vector<std::uint32_t> order(devices_.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      if (talk[a] != talk[b]) return talk[a] > talk[b];
      return placement.limit(a) - placement.bytes(a) < placement.limit(b) - placement.bytes(b);
    });
    for (const std::uint32_t d : order) {
      for (const std::uint32_t op : members) placement.move(op, d);
      // Neighbours that were charged for this tensor can only gain.
      if (!placement.over(d)) return true;
      for (const std::uint32_t op : members) placement.move(op, Placement::kNowhere);
    }
    return false;
  }

  std::int64_t bytes(std::uint32_t a, std::uint32_t b) const {
    std::vector<std::uint32_t> items;
    std::vector<std::uint32_t> tensors;
    std::int64_t sum = 0;
    const auto add = [&](std::uint32_t root) {
      for (const std::uint32_t op : members_[root]) {
        sum += table_.own_bytes[op];
        items.insert(items.end(), table_.shared(op).begin(), table_.shared(op).end());
        for (const OpTable::Edge& edge : table_.in(op)) {
          if (root_[edge.op] != a && root_[edge.op] != b) tensors.push_back(edge.op);
        }
      }
    };
    add(a);
    if (b != a) add(b);
    sort_unique(items);
    for (const std::uint32_t item : items) sum += table_.item_bytes[item];
    if (!table_.charge_every_reader) {
      sort_unique(tensors);
    }
    for (const std::uint32_t op : tensors) sum += table_.output_bytes[op];
    return sum;
  }

  const OpTable& table_;
  std::span<const Device> devices_;
  std::vector<std::uint32_t> root_;
  std::vector<std::vector<std::uint32_t>> members_;
};

}  // namespace

std::optional<Placement> as_given(const OpTable& table, std::span<const Device> devices,
                                  std::span<const Partition> partitions) {
  std::vector<std::uint32_t> of_node;
  for (const Partition& partition : partitions) {
    if (partition.device_ids.size() != 1) return std::nullopt;
    const std::size_t device = find_device(devices, partition.device_ids.front());
    if (device == devices.size()) return std::nullopt;
    for (const OpIndex n : partition.nodes) {
      if (n >= of_node.size()) of_node.resize(n + 1, Placement::kNowhere);
      of_node[n] = static_cast<std::uint32_t>(device);
    }
  }
  Placement placement(table, devices);
  for (std::size_t op = 0; op < table.size(); ++op) {
    const OpIndex n = table.node[op];
    if (n >= of_node.size() || of_node[n] == Placement::kNowhere) return std::nullopt;
    placement.move(op, of_node[n]);
  }
  return if_it_fits(std::move(placement));
}

std::optional<Placement> by_clusters(const OpTable& table, std::span<const Device> devices,
                                     std::int64_t bytes) {
  Clusters clusters(table, devices);
  clusters.join(bytes);
  auto placement = clusters.place();
  if (placement && !placement->fits()) placement.reset();
  return placement;
}

std::optional<Placement> by_finish_time(const OpTable& table, std::span<const Device> devices) {
  Placement placement(table, devices);
  std::vector<double> free(devices.size(), 0);
  std::vector<double> end(table.size(), 0);
  for (std::size_t op = 0; op < table.size(); ++op) {
    std::uint32_t best = Placement::kNowhere;
    double best_end = 0;
    for (std::uint32_t d = 0; d < devices.size(); ++d) {
      double start = free[d];
      for (const OpTable::Edge& edge : table.in(op)) {
        const double comm = placement.device(edge.op) == d ? 0 : edge.seconds;
        start = std::max(start, end[edge.op] + comm);
      }
      const double finish = start + table.time[op];
      if (best != Placement::kNowhere && finish >= best_end) continue;
      if (!placement.try_move(op, d)) continue;
      best = d;
      best_end = finish;
      placement.move(op, Placement::kNowhere);
    }
    if (best == Placement::kNowhere) return std::nullopt;
    placement.move(op, best);
    end[op] = free[best] = best_end;
  }
  return if_it_fits(std::move(placement));
}

std::optional<Placement> by_backtracking(const OpTable& table, std::span<const Device> devices,
                                         std::int64_t work_limit) {
  Placement placement(table, devices);
  std::vector<std::vector<std::uint32_t>> choices(table.size());  // left to try, best last
  std::size_t op = 0;
  bool forward = true;
  while (op < table.size()) {
    if (forward) {
      // Where it adds least, of equals where more room is left.
      std::vector<std::pair<std::int64_t, std::uint32_t>> order;
      for (std::uint32_t d = 0; d < devices.size(); ++d) {
        const std::int64_t before = placement.bytes(d);
        placement.move(op, d);
        const std::int64_t added = placement.bytes(d) - before;
        if (!placement.over(d)) order.emplace_back(added, d);
        placement.move(op, Placement::kNowhere);
      }
      std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
        if (a.first != b.first) return a.first > b.first;
        return placement.limit(a.second) - placement.bytes(a.second) <
               placement.limit(b.second) - placement.bytes(b.second);
      });
      choices[op].clear();
      for (const auto& [added, d] : order) choices[op].push_back(d);
    } else {
      placement.move(op, Placement::kNowhere);
    }
    if (--work_limit < 0) return std::nullopt;
    if (choices[op].empty()) {
      if (op == 0) return std::nullopt;
      --op;
      forward = false;
      continue;
    }
    placement.move(op, choices[op].back());
    choices[op].pop_back();
    ++op;
    forward = true;
  }
  return if_it_fits(std::move(placement));
}

Placement least_overflow(const OpTable& table, std::span<const Device> devices) {
  Placement placement(table, devices);
  for (std::size_t op = 0; op < table.size(); ++op) {
    std::uint32_t best = 0;
    std::int64_t most_left = 0;
    for (std::uint32_t d = 0; d < devices.size(); ++d) {
      placement.move(op, d);
      const std::int64_t left = placement.limit(d) - placement.bytes(d);
      placement.move(op, Placement::kNowhere);
      if (d > 0 && left <= most_left) continue;
      best = d;
      most_left = left;
    }
    placement.move(op, best);
  }
  return placement;
}

std::vector<std::uint32_t> graph_order(const OpTable& table) {
  std::vector<std::uint32_t> order(table.size());
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

std::vector<std::uint32_t> depth_first_order(const OpTable& table) {
  std::vector<std::uint32_t> order;
  std::vector<std::size_t> waiting(table.size());
  std::vector<std::uint32_t> stack;
  for (std::size_t op = table.size(); op-- > 0;) {
    waiting[op] = table.in(op).size();
    if (waiting[op] == 0) stack.push_back(static_cast<std::uint32_t>(op));
  }
  while (!stack.empty()) {
    const std::uint32_t op = stack.back();
    stack.pop_back();
    order.push_back(op);
    const auto out = table.out(op);
    for (auto edge = out.rbegin(); edge != out.rend(); ++edge) {
      if (--waiting[edge->op] == 0) stack.push_back(edge->op);
    }
  }
  return order;
}

}  // namespace kerf::partition::fx
