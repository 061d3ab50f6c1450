// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: cut a line into at most as many runs as there are devices, in their order, minimising
// the largest of compute(run) and crossing(border). Whether a limit T can be met is decided by
// letting every device take as long a run as T, its memory and the borders that cost no more than T
// allow (longer is never worse: what is left only shrinks); T is bisected. Optimal, which the
// original's dynamic program over all pairs, O(n^2 devices), is too, but for its borders.
#include "kerf/place/pipedream/pipedream.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/place/order/line.h"

namespace kerf::place {
namespace {

using DeviceOrder = std::vector<SlotId>;
using Ends = std::vector<std::size_t>;  // by device: the place after its run

class RunCutter {
 public:
  RunCutter(const Instance& units, const Line& line, const DeviceOrder& devices)
      : units_(units), line_(line), devices_(devices) {}

  // Ends of the devices' runs, the best there are; nothing: no split fits.
  std::optional<Ends> cut() const {
    double high = *std::max_element(line_.crossing.begin(), line_.crossing.end());
    for (const SlotId device : devices_) {
      double time = 0;
      for (const UnitId unit : line_.order) time += units_.time(unit, device);
      high = std::max(high, time);
    }
    std::optional<Ends> best = within(high);
    if (!best) return best;
    constexpr double kPrecision = 1e-9;
    constexpr int kMostRounds = 100;  // with costs far apart, `low` stays at 0 for ever
    double low = 0;
    for (int round = 0; round < kMostRounds && high - low > kPrecision * high; ++round) {
      const double middle = low + (high - low) / 2;
      if (auto ends = within(middle)) {
        best = std::move(ends);
        high = middle;
      } else {
        low = middle;
      }
    }
    return best;
  }

 private:
  std::optional<Ends> within(double limit) const {
    Ends ends;
    std::size_t start = 0;
    for (const SlotId device : devices_) {
      start = farthest(device, start, limit);
      ends.push_back(start);
    }
    if (start < line_.order.size()) return std::nullopt;
    return ends;
  }

  // The last border that costs at most `limit` up to which the device can take everything.
  std::size_t farthest(SlotId device, std::size_t start, double limit) const {
    const std::size_t size = line_.order.size();
    double time = 0;
    double bytes = 0;
    std::size_t border = start;
    for (std::size_t i = start; i < size; ++i) {
      const UnitId unit = line_.order[i];
      time += units_.time(unit, device);
      bytes += units_.bytes[unit];
      if (!units_.runs_on(unit, device) || time > limit || bytes > units_.memory[device]) break;
      if (i + 1 == size || line_.crossing[i + 1] <= limit) border = i + 1;
    }
    return border;
  }

  const Instance& units_;
  const Line& line_;
  const DeviceOrder& devices_;
};

std::vector<DeviceOrder> device_orders(const Instance& units) {
  DeviceOrder given = count_up<SlotId>(units.num_devices);
  DeviceOrder fastest_first = given;
  std::stable_sort(fastest_first.begin(), fastest_first.begin() + units.cpu,
                   [&](SlotId a, SlotId b) { return units.slowness[a] < units.slowness[b]; });
  if (fastest_first == given) return {given};
  return {given, fastest_first};
}

}  // namespace

LoadAnswer pipedream(const Instance& instance, const LoadOptions& /*options*/) {
  const Line line = own_line(instance);  // PipeDream has one order, the model's
  LoadAnswer out;
  out.objective = kInfinity;
  for (const DeviceOrder& devices : device_orders(instance)) {
    const auto ends = RunCutter(instance, line, devices).cut();
    if (!ends) continue;
    Split device(line.order.size());
    std::size_t place = 0;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      for (; place < (*ends)[i]; ++place) device[line.order[place]] = devices[i];
    }
    const Loads loads = find_loads(instance, device);
    if (!loads.fits || loads.busiest >= out.objective) continue;
    out.device = std::move(device);
    out.objective = loads.busiest;
  }
  return out;
}

}  // namespace kerf::place
