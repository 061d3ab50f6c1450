// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Depth first over the units; a device that is too full ends a branch. O(splits x edges).
#include "kerf/place/refine/latency_enumeration.h"

#include <algorithm>
#include <utility>

#include "kerf/base/infinity.h"

namespace kerf::place {
namespace {

class Enumeration {
 public:
  Enumeration(const LoweredLoad& lowered, LatencyTimer& timer, double good_enough,
              const StopClock& clock)
      : nodes_(lowered.nodes),
        units_(lowered.instance),
        timer_(timer),
        good_enough_(good_enough),
        clock_(clock),
        device_(units_.num_units(), units_.cpu),
        node_device_(lowered.unit_of.size(), units_.cpu),
        bytes_(units_.num_devices, 0) {
    best_.objective = kInfinity;
  }

  LoadAnswer run() {
    place(UnitId{0}, 0);
    best_.truncated = stopped_ && best_.objective > good_enough_;
    best_.optimal = !best_.truncated;
    return std::move(best_);
  }

 private:
  // The units from `unit` on; accelerators from `used` on are still empty.
  void place(UnitId unit, std::uint32_t used) {
    if (unit == units_.num_units()) return look();
    if (units_.on_accelerator[unit] != 0) {
      for (SlotId d{0}; d < std::min<std::uint32_t>(used + 1, units_.cpu); ++d) {
        put(unit, d, std::max(used, d + 1));
      }
    }
    if (units_.has_cpu() && units_.on_cpu[unit] != 0) put(unit, units_.cpu, used);
  }

  void put(UnitId unit, SlotId to, std::uint32_t used) {
    const double before = bytes_[to];
    if (stopped_ || before + units_.bytes[unit] > units_.memory[to]) return;
    bytes_[to] += units_.bytes[unit];
    device_[unit] = to;
    for (const std::uint32_t node : nodes_[unit]) node_device_[node] = to;
    place(UnitId{unit + 1}, used);
    bytes_[to] = before;  // exactly: what is taken off again may leave a rest
  }

  void look() {
    constexpr int kBetweenLooks = 64;
    best_.work += timer_.work();
    const double latency = timer_.latency(node_device_);
    if (latency < best_.objective) {
      best_.objective = latency;
      best_.device = device_;
    }
    stopped_ =
        best_.objective <= good_enough_ || (looks_++ % kBetweenLooks == 0 && clock_.struck());
  }

  const RowsOf<UnitId, std::uint32_t>& nodes_;  // by unit
  const Instance& units_;
  LatencyTimer& timer_;
  double good_enough_;
  const StopClock& clock_;
  std::vector<SlotId> device_, node_device_;
  std::vector<double> bytes_;  // by device
  int looks_ = 0;
  bool stopped_ = false;
  LoadAnswer best_;
};

}  // namespace

double count_splits(const Instance& units) {
  std::vector<double> ways(std::size_t{units.cpu} + 1, 0);  // by accelerators used
  ways[0] = 1;
  for (UnitId u{0}; u < units.num_units(); ++u) {
    std::vector<double> next(ways.size(), 0);
    for (std::size_t used = 0; used < ways.size(); ++used) {
      if (units.has_cpu() && units.on_cpu[u] != 0) next[used] += ways[used];
      if (units.on_accelerator[u] == 0) continue;
      next[used] += ways[used] * static_cast<double>(used);
      if (used < units.cpu) next[used + 1] += ways[used];
    }
    ways = std::move(next);
  }
  double all = 0;
  for (const double some : ways) all += some;
  return all;
}

LoadAnswer try_all_splits(const LoweredLoad& lowered, LatencyTimer& timer, double good_enough,
                          const StopClock& clock) {
  return Enumeration(lowered, timer, good_enough, clock).run();
}

}  // namespace kerf::place
