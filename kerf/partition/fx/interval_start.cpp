// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <queue>

#include "kerf/base/infinity.h"
#include "kerf/base/stop_clock.h"
#include "kerf/partition/fx/starts.h"

namespace kerf::partition::fx {
namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

// What it costs to cut before each position: the dearest transfer that crosses, and a little for
// all of them, so that equals are cut where less crosses.
std::vector<double> cut_costs(const OpTable& table, std::span<const std::uint32_t> order,
                              const std::vector<std::uint32_t>& position) {
  const std::size_t count = order.size();
  std::vector<double> all(count + 1, 0);
  double total = 0;
  std::priority_queue<std::pair<double, std::size_t>> open;  // seconds, position of the reader
  std::vector<double> cost(count + 1, 0);
  for (std::size_t at = 0; at < count; ++at) {
    while (!open.empty() && open.top().second < at) open.pop();
    cost[at] = open.empty() ? 0 : open.top().first;
    for (const OpTable::Edge& edge : table.out(order[at])) {
      const std::size_t reader = position[edge.op];
      open.emplace(edge.seconds, reader);
      all[at + 1] += edge.seconds;
      all[reader + 1 > count ? count : reader + 1] -= edge.seconds;
      total += edge.seconds;
    }
  }
  const double scale = total > 0 ? 1e-3 / total : 0;
  double crossing = 0;
  for (std::size_t at = 0; at <= count; ++at) {
    crossing += all[at];
    cost[at] += cost[at] * scale * crossing;
  }
  return cost;
}

// Bytes of a growing interval.
class Segment {
 public:
  Segment(const OpTable& table, std::span<const std::uint32_t> order,
          const std::vector<std::uint32_t>& position)
      : table_(table),
        order_(order),
        position_(position),
        item_seen_(table.item_bytes.size(), kNone),
        tensor_seen_(table.size(), kNone) {}

  void start(std::size_t begin) {
    begin_ = begin;
    bytes_ = 0;
  }
  std::int64_t add(std::size_t at) {
    const std::uint32_t op = order_[at];
    bytes_ += table_.own_bytes[op];
    for (const std::uint32_t item : table_.shared(op)) {
      if (item_seen_[item] != begin_) bytes_ += table_.item_bytes[item];
      item_seen_[item] = begin_;
    }
    for (const OpTable::Edge& edge : table_.in(op)) {
      if (position_[edge.op] >= begin_) continue;
      if (table_.charge_every_reader || tensor_seen_[edge.op] != begin_) {
        bytes_ += table_.output_bytes[edge.op];
      }
      tensor_seen_[edge.op] = begin_;
    }
    return bytes_;
  }

 private:
  const OpTable& table_;
  std::span<const std::uint32_t> order_;
  const std::vector<std::uint32_t>& position_;
  std::size_t begin_ = 0;
  std::int64_t bytes_ = 0;
  std::vector<std::size_t> item_seen_;
  std::vector<std::size_t> tensor_seen_;
};

}  // namespace

std::optional<Placement> intervals(const OpTable& table, std::span<const Device> devices,
                                   std::span<const std::uint32_t> op_order,
                                   std::span<const std::uint32_t> device_order,
                                   std::int64_t work_limit) {
  const std::size_t count = op_order.size();
  const std::size_t stages = device_order.size();
  std::vector<std::uint32_t> position(count);
  for (std::uint32_t at = 0; at < count; ++at) position[op_order[at]] = at;
  const std::vector<double> cut = cut_costs(table, op_order, position);
  const std::int64_t largest = devices[largest_device(devices)].memory;

  // least[s][j]: the first j ops on the first s devices; from[s][j]: where the last one starts.
  std::vector<std::vector<double>> least(stages + 1, std::vector<double>(count + 1, kInfinity));
  std::vector<std::vector<std::size_t>> from(stages + 1,
                                             std::vector<std::size_t>(count + 1, kNone));
  for (std::size_t s = 0; s <= stages; ++s) least[s][0] = 0;
  Segment segment(table, op_order, position);
  for (std::size_t begin = 0; begin < count; ++begin) {
    // Every interval that ends here has been seen: a device may be left out.
    for (std::size_t s = 1; s <= stages; ++s) {
      if (least[s - 1][begin] > least[s][begin]) continue;
      least[s][begin] = least[s - 1][begin];
      from[s][begin] = kNone;
    }
    if (deadline_passed()) return std::nullopt;
    segment.start(begin);
    for (std::size_t end = begin; end < count; ++end) {
      const std::int64_t bytes = segment.add(end);
      if (bytes > largest) break;
      if ((work_limit -= static_cast<std::int64_t>(stages)) < 0) return std::nullopt;
      count_steps(static_cast<std::int64_t>(1 + stages / 4));
      for (std::size_t s = 1; s <= stages; ++s) {
        if (bytes > devices[device_order[s - 1]].memory) continue;
        const double cost = least[s - 1][begin] + (begin == 0 ? 0 : cut[begin]);
        if (cost >= least[s][end + 1]) continue;
        least[s][end + 1] = cost;
        from[s][end + 1] = begin;
      }
    }
  }
  for (std::size_t s = 1; s <= stages; ++s) {
    if (least[s - 1][count] > least[s][count]) continue;
    least[s][count] = least[s - 1][count];
    from[s][count] = kNone;
  }
  if (least[stages][count] == kInfinity) return std::nullopt;
  Placement placement(table, devices);
  std::size_t end = count;
  for (std::size_t s = stages; s > 0; --s) {
    if (from[s][end] == kNone) continue;
    for (std::size_t at = from[s][end]; at < end; ++at) {
      placement.move(op_order[at], device_order[s - 1]);
    }
    end = from[s][end];
  }
  if (!placement.fits()) return std::nullopt;
  return placement;
}

}  // namespace kerf::partition::fx
