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
#include <limits>
#include <numeric>
#include <optional>

#include "kerf/base/infinity.h"
#include "kerf/place/order/line.h"

namespace kerf::place {
namespace {

class RunCutter {
 public:
  RunCutter(const Instance& units, const Line& line) : units_(units), line_(line) {
    time_before_.push_back(0);
    cpu_before_.push_back(0);
    bytes_before_.push_back(0);
    for (const std::uint32_t unit : line.order) {
      time_before_.push_back(time_before_.back() + units.accelerator_time[unit]);
      cpu_before_.push_back(cpu_before_.back() + units.cpu_time[unit]);
      bytes_before_.push_back(bytes_before_.back() + units.bytes[unit]);
    }
    next_odd_ = next_without(units.on_accelerator);
    next_odd_for_cpu_ = next_without(units.on_cpu);
  }

  // Ends of the devices' runs, the best there are; nothing: no split fits.
  std::optional<std::vector<std::size_t>> cut(const std::vector<std::uint32_t>& devices) const {
    double high = 0;
    for (const std::uint32_t device : devices) high = std::max(high, compute(device, 0, size()));
    high = std::max(high, *std::max_element(line_.crossing.begin(), line_.crossing.end()));
    std::optional<std::vector<std::size_t>> best = within(devices, high);
    if (!best) return best;
    constexpr double kPrecision = 1e-9;
    constexpr int kMostRounds = 100;  // with costs far apart, `low` stays at 0 for ever
    double low = 0;
    for (int round = 0; round < kMostRounds && high - low > kPrecision * high; ++round) {
      const double middle = low + (high - low) / 2;
      if (auto ends = within(devices, middle)) {
        best = std::move(ends);
        high = middle;
      } else {
        low = middle;
      }
    }
    return best;
  }

 private:
  std::size_t size() const { return line_.order.size(); }

  // By place: where the next unit stands that is not marked.
  std::vector<std::size_t> next_without(const std::vector<std::uint8_t>& marked) const {
    std::vector<std::size_t> next(size() + 1, size());
    for (std::size_t i = size(); i-- > 0;) {
      next[i] = marked[line_.order[i]] != 0 ? next[i + 1] : i;
    }
    return next;
  }
  double compute(std::uint32_t device, std::size_t from, std::size_t to) const {
    return device == units_.cpu ? cpu_before_[to] - cpu_before_[from]
                                : (time_before_[to] - time_before_[from]) * units_.slowness[device];
  }

  std::optional<std::vector<std::size_t>> within(const std::vector<std::uint32_t>& devices,
                                                 double limit) const {
    std::vector<std::size_t> ends;
    std::size_t start = 0;
    for (const std::uint32_t device : devices) {
      start = farthest(device, start, limit);
      ends.push_back(start);
    }
    if (start < size()) return std::nullopt;
    return ends;
  }

  // The last border that costs at most `limit` up to which the device can take everything.
  std::size_t farthest(std::uint32_t device, std::size_t start, double limit) const {
    std::size_t low = start;
    std::size_t high = device == units_.cpu ? next_odd_for_cpu_[start] : next_odd_[start];
    while (low < high) {
      const std::size_t middle = (low + high + 1) / 2;
      const bool fits = compute(device, start, middle) <= limit &&
                        bytes_before_[middle] - bytes_before_[start] <= units_.memory[device];
      (fits ? low : high) = fits ? middle : middle - 1;
    }
    while (low > start && low < size() && line_.crossing[low] > limit) --low;
    return low;
  }

  const Instance& units_;
  const Line& line_;
  std::vector<double> time_before_, cpu_before_, bytes_before_;  // by place
  // By place: the next unit that accelerators, or the CPU, cannot run.
  std::vector<std::size_t> next_odd_, next_odd_for_cpu_;
};

std::vector<std::vector<std::uint32_t>> device_orders(const Instance& units) {
  std::vector<std::uint32_t> given(units.num_devices);
  std::iota(given.begin(), given.end(), 0U);
  std::vector<std::uint32_t> fastest_first = given;
  std::stable_sort(
      fastest_first.begin(), fastest_first.begin() + units.cpu,
      [&](std::uint32_t a, std::uint32_t b) { return units.slowness[a] < units.slowness[b]; });
  if (fastest_first == given) return {given};
  return {given, fastest_first};
}

}  // namespace

LoadAnswer pipedream(const Instance& instance, const LoadOptions& /*options*/) {
  const Line line = own_line(instance);  // PipeDream has one order, the model's
  LoadAnswer out;
  out.objective = kInfinity;
  for (const std::vector<std::uint32_t>& devices : device_orders(instance)) {
    const auto ends = RunCutter(instance, line).cut(devices);
    if (!ends) continue;
    std::vector<std::uint32_t> device(line.order.size());
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
