// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <queue>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/base/stop_clock.h"
#include "kerf/base/topological_order.h"
#include "kerf/partition/fx/starts.h"

namespace kerf::partition::fx {
namespace {

using Order = std::vector<std::uint32_t>;  // of ops
using DeviceOrder = std::vector<SlotId>;

// Chains stay together.
Order depth_first_order(const OpTable& table) {
  Order order;
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

// The orders of devices worth trying; one when all are alike.
std::vector<DeviceOrder> device_orders(std::span<const Device> devices) {
  std::vector<DeviceOrder> orders{count_up<SlotId>(devices.size())};
  DeviceOrder by_memory = orders.front();
  std::stable_sort(by_memory.begin(), by_memory.end(),
                   [&](SlotId a, SlotId b) { return devices[a].memory < devices[b].memory; });
  if (devices[by_memory.front()].memory == devices[by_memory.back()].memory) return orders;
  orders.push_back(by_memory);
  orders.emplace_back(by_memory.rbegin(), by_memory.rend());
  return orders;
}

// What it costs to cut before each position: the dearest transfer that crosses, and a little for
// all of them, so that equals are cut where less crosses.
std::vector<double> cut_costs(const OpTable& table, const Order& order) {
  const std::size_t count = order.size();
  const Order position = places_in(order);
  std::vector<double> change(count + 1, 0);  // of the sum of all that cross
  double total = 0;
  std::priority_queue<std::pair<double, std::size_t>> open;  // seconds, position of the reader
  std::vector<double> cost(count + 1, 0);
  for (std::size_t at = 0; at < count; ++at) {
    while (!open.empty() && open.top().second < at) open.pop();
    cost[at] = open.empty() ? 0 : open.top().first;
    for (const OpTable::Edge& edge : table.out(order[at])) {
      open.emplace(edge.seconds, position[edge.op]);
      change[at + 1] += edge.seconds;
      change[position[edge.op] + 1] -= edge.seconds;
      total += edge.seconds;
    }
  }
  const double scale = total > 0 ? 1e-3 / total : 0;
  double crossing = 0;
  for (std::size_t at = 0; at <= count; ++at) {
    crossing += change[at];
    cost[at] += cost[at] * scale * crossing;
  }
  return cost;
}

// By position, where the longest interval that begins there and fits the memory ends. An interval
// that grows at its end never takes less, one that loses its beginning may take more: what it loses
// is then read from elsewhere.
std::vector<std::size_t> reaches(const OpTable& table, const Order& order, const Device& device) {
  Placement window(table, {&device, 1});
  const SlotId only{0};
  std::vector<std::size_t> out;
  std::size_t end = 0;
  for (std::size_t begin = 0; begin < order.size(); ++begin) {
    end = std::max(begin, end);
    while (end < order.size() && !window.over(only)) window.move(order[end++], only);
    while (window.over(only)) window.move(order[--end], Placement::kNowhere);
    out.push_back(end);
    window.move(order[begin], Placement::kNowhere);
  }
  return out;
}

// The cheapest cut of an order of the ops into intervals, the devices in theirs.
class IntervalCut {
 public:
  IntervalCut(const OpTable& table, std::span<const Device> devices, const Order& ops)
      : table_(table), devices_(devices), ops_(ops), cut_(cut_costs(table, ops)) {
    cut_.front() = 0;
    for (const Device& device : devices) {
      const auto same = std::find_if(devices.begin(), devices.end(), [&](const Device& other) {
        return other.memory == device.memory;
      });
      const auto first = static_cast<std::size_t>(same - devices.begin());
      reach_.push_back(first < reach_.size() ? reach_[first] : reaches(table, ops, device));
    }
  }

  std::optional<Placement> best(const DeviceOrder& device_order) const {
    constexpr std::int64_t kWork = 200'000'000;
    if (work() > kWork) return std::nullopt;
    const std::size_t count = ops_.size();
    const std::size_t stages = device_order.size();
    // least[s][j]: the first j ops on the first s devices; from[s][j]: where the last one starts, j
    // itself when it has none.
    std::vector<std::vector<double>> least(stages + 1, std::vector<double>(count + 1, kInfinity));
    std::vector<std::vector<std::size_t>> from(stages + 1, std::vector<std::size_t>(count + 1));
    least[0][0] = 0;
    for (std::size_t begin = 0; begin <= count; ++begin) {
      if (deadline_passed()) return std::nullopt;
      for (std::size_t s = 1; s <= stages; ++s) {
        // Every interval that ends here has been seen: a device may be left out.
        if (least[s - 1][begin] <= least[s][begin]) {
          least[s][begin] = least[s - 1][begin];
          from[s][begin] = begin;
        }
        if (begin == count || least[s - 1][begin] == kInfinity) continue;
        const double cost = least[s - 1][begin] + cut_[begin];
        const std::size_t last = reach_[device_order[s - 1]][begin];
        count_steps(static_cast<std::int64_t>((last - begin) / 4));
        for (std::size_t end = begin + 1; end <= last; ++end) {
          if (cost >= least[s][end]) continue;
          least[s][end] = cost;
          from[s][end] = begin;
        }
      }
    }
    if (least[stages][count] == kInfinity) return std::nullopt;
    Placement placement(table_, devices_);
    std::size_t end = count;
    for (std::size_t s = stages; s > 0; --s) {
      for (std::size_t at = from[s][end]; at < end; ++at) {
        placement.move(ops_[at], device_order[s - 1]);
      }
      end = from[s][end];
    }
    return placement;
  }

 private:
  // Steps of `best`, at most.
  std::int64_t work() const {
    const std::vector<std::size_t>& longest = reach_[largest_device(devices_)];
    std::size_t intervals = 0;
    for (std::size_t begin = 0; begin < ops_.size(); ++begin) intervals += longest[begin] - begin;
    return static_cast<std::int64_t>(intervals * devices_.size());
  }

  const OpTable& table_;
  std::span<const Device> devices_;
  const Order& ops_;
  std::vector<double> cut_;
  std::vector<std::vector<std::size_t>> reach_;  // by device
};

}  // namespace

std::vector<Placement> interval_starts(const OpTable& table, std::span<const Device> devices) {
  std::vector<Placement> out;
  for (const Order& ops : {count_up<std::uint32_t>(table.size()), depth_first_order(table)}) {
    const IntervalCut cut(table, devices, ops);
    for (const DeviceOrder& device_order : device_orders(devices)) {
      if (auto placement = cut.best(device_order)) out.push_back(std::move(*placement));
    }
  }
  return out;
}

}  // namespace kerf::partition::fx
