// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/starts.h"

#include <algorithm>
#include <initializer_list>
#include <tuple>

#include "kerf/base/count_up.h"

namespace kerf::partition::fx {
namespace {

class Clusters {
 public:
  Clusters(const OpTable& table, std::span<const Device> devices)
      : table_(table),
        devices_(devices),
        root_(table.size()),
        members_(table.size()),
        scale_(table, devices.first(1)) {
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
      if (a == b || bytes({a, b}) > limit) continue;
      for (const std::uint32_t op : members_[b]) root_[op] = a;
      members_[a].insert(members_[a].end(), members_[b].begin(), members_[b].end());
      members_[b].clear();
    }
  }

  std::optional<Placement> place() {
    std::vector<std::uint32_t> roots;
    std::vector<std::int64_t> size(table_.size(), 0);
    for (std::uint32_t op = 0; op < table_.size(); ++op) {
      if (members_[op].empty()) continue;
      roots.push_back(op);
      size[op] = bytes({op});
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
        const SlotId d = placement.device(edge.op);
        if (d != Placement::kNowhere) talk[d] += edge.seconds;
      };
      for (const OpTable::Edge& edge : table_.in(op)) count(edge);
      for (const OpTable::Edge& edge : table_.out(op)) count(edge);
    }
    std::vector<SlotId> order = count_up<SlotId>(devices_.size());
    std::stable_sort(order.begin(), order.end(), [&](SlotId a, SlotId b) {
      if (talk[a] != talk[b]) return talk[a] > talk[b];
      return placement.limit(a) - placement.bytes(a) < placement.limit(b) - placement.bytes(b);
    });
    for (const SlotId d : order) {
      for (const std::uint32_t op : members) placement.move(op, d);
      // Neighbours that were charged for this tensor can only gain.
      if (!placement.over(d)) return true;
      for (const std::uint32_t op : members) placement.move(op, Placement::kNowhere);
    }
    return false;
  }

  // Of all their ops on one device.
  std::int64_t bytes(std::initializer_list<std::uint32_t> roots) {
    for (const std::uint32_t root : roots) {
      for (const std::uint32_t op : members_[root]) scale_.move(op, SlotId{0});
    }
    const std::int64_t sum = scale_.bytes(0);
    for (const std::uint32_t root : roots) {
      for (const std::uint32_t op : members_[root]) scale_.move(op, Placement::kNowhere);
    }
    return sum;
  }

  const OpTable& table_;
  std::span<const Device> devices_;
  std::vector<std::uint32_t> root_;
  std::vector<std::vector<std::uint32_t>> members_;
  Placement scale_;  // one device, empty but while it weighs
};

}  // namespace

std::optional<Placement> as_given(const OpTable& table, std::span<const Device> devices,
                                  std::span<const Partition> partitions) {
  Placement placement(table, devices);
  for (const Partition& partition : partitions) {
    if (partition.device_ids.size() != 1) return std::nullopt;
    const std::size_t device = find_device(devices, partition.device_ids.front());
    for (const OpIndex n : partition.nodes) {
      const auto op = std::lower_bound(table.node.begin(), table.node.end(), n);
      if (op == table.node.end() || *op != n) continue;  // a leaf
      placement.move(static_cast<std::size_t>(op - table.node.begin()), SlotId{device});
    }
  }
  return placement;
}

std::optional<Placement> by_clusters(const OpTable& table, std::span<const Device> devices,
                                     std::int64_t bytes) {
  Clusters clusters(table, devices);
  clusters.join(bytes);
  return clusters.place();
}

std::optional<Placement> by_finish_time(const OpTable& table, std::span<const Device> devices) {
  Placement placement(table, devices);
  std::vector<double> free(devices.size(), 0);
  std::vector<double> end(table.size(), 0);
  for (std::size_t op = 0; op < table.size(); ++op) {
    SlotId best = Placement::kNowhere;
    double best_end = 0;
    for (SlotId d{0}; d < devices.size(); ++d) {
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
  return placement;
}

std::optional<Placement> by_backtracking(const OpTable& table, std::span<const Device> devices,
                                         std::int64_t work_limit) {
  Placement placement(table, devices);
  // Devices with room: where the op adds least comes last, of equals where more room is left.
  const auto choices_for = [&](std::size_t op) {
    std::vector<std::tuple<std::int64_t, std::int64_t, SlotId>> order;
    for (SlotId d{0}; d < devices.size(); ++d) {
      const std::int64_t before = placement.bytes(d);
      placement.move(op, d);
      const std::int64_t added = placement.bytes(d) - before;
      if (!placement.over(d)) order.emplace_back(-added, placement.limit(d) - before, d);
      placement.move(op, Placement::kNowhere);
    }
    std::sort(order.begin(), order.end());
    std::vector<SlotId> choices;
    for (const auto& [added, room, d] : order) choices.push_back(d);
    return choices;
  };
  std::vector<std::vector<SlotId>> choices(table.size());  // left to try
  if (!choices.empty()) choices[0] = choices_for(0);
  for (std::size_t op = 0; op < table.size();) {
    if (--work_limit < 0) return std::nullopt;
    placement.move(op, Placement::kNowhere);
    if (choices[op].empty()) {
      if (op == 0) return std::nullopt;
      --op;
      continue;
    }
    placement.move(op, choices[op].back());
    choices[op].pop_back();
    if (++op < table.size()) choices[op] = choices_for(op);
  }
  return placement;
}

Placement least_overflow(const OpTable& table, std::span<const Device> devices) {
  Placement placement(table, devices);
  for (std::size_t op = 0; op < table.size(); ++op) {
    SlotId best{0};
    std::int64_t most_left = 0;
    for (SlotId d{0}; d < devices.size(); ++d) {
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

}  // namespace kerf::partition::fx
