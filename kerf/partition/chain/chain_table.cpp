// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: split a sequence into one interval for each device, in order, some empty, minimising the
// largest load. Source: the PipeDream recurrence (Narayanan et al. 2019; specs/autopipe.md 2.4)
// with true loads: an interval's load is not monotone (taking in a consumer can save a transfer),
// so all pairs of ends are candidates, except those that bounds rule out. Optimal.
//   best(p, i) = min( best(p+1, i),  min over j > i of max(load_p(i, j), best(p+1, j)) )
#include "kerf/partition/chain/chain_table.h"

#include <algorithm>

#include "kerf/base/stop_clock.h"

namespace kerf::partition {

ChainTable::ChainTable(const Intervals& intervals, const ChainModel& model)
    : intervals_(intervals),
      model_(model),
      width_(model.devices.size() + 1),
      speed_before_(width_),
      room_before_(width_),
      room_after_(width_),
      best_((intervals.num_nodes() + 1) * width_),
      next_((intervals.num_nodes() + 1) * width_) {
  best_link_.latency = best_link_.per_byte = kInfinity;
  for (std::size_t d = 0; d < model.devices.size(); ++d) {
    const DeviceModel& device = model.devices[d];
    const double limit = device.limit == kNoLimit ? kInfinity : static_cast<double>(device.limit);
    speed_before_[d + 1] = speed_before_[d] + 1 / device.slowness;
    room_before_[d + 1] = room_before_[d] + limit;
    for (std::size_t first = 0; first <= d; ++first) room_after_[first] += limit;
    slowest_ = std::min(slowest_, 1 / device.slowness);
    if (d == 0) continue;  // nothing comes before the first
    best_link_.latency = std::min(best_link_.latency, device.in.latency);
    best_link_.per_byte = std::min(best_link_.per_byte, device.in.per_byte);
  }
  if (model.devices.size() == 1) best_link_.latency = best_link_.per_byte = 0;
}

void ChainTable::solve(const std::vector<bool>& cuttable, Measure measure, double cap) {
  solve_all(cuttable, measure, cap, false);
}

bool ChainTable::solve_in_time(const std::vector<bool>& cuttable, Measure measure, double cap) {
  return solve_all(cuttable, measure, cap, true);
}

bool ChainTable::solve_all(const std::vector<bool>& cuttable, Measure measure, double cap,
                           bool in_time) {
  std::fill(best_.begin(), best_.end(), kInfinity);
  const std::size_t end = intervals_.num_nodes();
  for (std::size_t d = 0; d < width_; ++d) {
    best_[end * width_ + d] = 0;
    next_[end * width_ + d] = static_cast<std::int32_t>(end);
  }
  for (std::size_t start = end; start-- > 0;) {
    if (!cuttable[start]) continue;
    if (deadline_passed() && in_time) return false;
    solve_from(start, cuttable, measure, cap);
  }
  return true;
}

bool ChainTable::enough_before(std::size_t device, std::size_t position, double cap) const {
  const bool in_time =
      cap == kInfinity || intervals_.work_before(position) <= cap * speed_before_[device] * kSlack;
  return in_time &&
         static_cast<double>(intervals_.weights_before(position)) <= room_before_[device];
}

bool ChainTable::enough_after(std::size_t device, std::size_t position, double cap) const {
  const double work =
      intervals_.work_before(intervals_.num_nodes()) - intervals_.work_before(position);
  // Whatever crosses is received at least once, by one of them: load, hence work at its speed.
  const Intervals::Crossing& crossing = intervals_.crossing(position);
  const double receiving = best_link_.latency * static_cast<double>(crossing.count) +
                           best_link_.per_byte * static_cast<double>(crossing.bytes);
  const double speed = speed_before_.back() - speed_before_[device];
  const bool in_time = cap == kInfinity || work + receiving * slowest_ <= cap * speed * kSlack;
  return in_time && static_cast<double>(intervals_.weights_after(position)) <= room_after_[device];
}

ChainTable::Range ChainTable::useful_devices(std::size_t position, Measure measure,
                                             double cap) const {
  Range range{0, model_.devices.size()};
  if (measure == Measure::overflow) return range;
  while (range.low < range.high && !enough_before(range.low, position, cap)) ++range.low;
  while (range.low < range.high && !enough_after(range.high - 1, position, cap)) --range.high;
  return range;
}

void ChainTable::solve_from(std::size_t start, const std::vector<bool>& cuttable, Measure measure,
                            double cap) {
  const Range range = useful_devices(start, measure, cap);
  double* const best = &best_[start * width_];
  std::int32_t* const next = &next_[start * width_];
  if (range.low >= range.high) return;
  std::int64_t measured_ends = 0;
  double fastest = kInfinity;
  std::int64_t largest = 0;
  for (std::size_t p = range.low; p < range.high; ++p) {
    fastest = std::min(fastest, model_.devices[p].slowness);
    largest = std::max(largest, model_.devices[p].limit);
  }
  intervals_.scan(start, [&](std::size_t end, const IntervalFigures& figures) {
    // Time and least memory only grow: nothing further on can be any good.
    if (measure == Measure::overflow) {
      if (largest != kNoLimit && static_cast<double>(figures.least_memory() - largest) > cap) {
        return false;
      }
    } else if (figures.time * fastest > cap * kSlack || figures.least_memory() > largest) {
      return false;
    }
    if (!cuttable[end]) return true;
    ++measured_ends;
    const double* const rest = &best_[end * width_];
    for (std::size_t p = range.low; p < range.high; ++p) {
      const DeviceModel& device = model_.devices[p];
      const double measured = measure_of(device, figures, model_.n_microbatches, measure);
      if (measured > cap) continue;
      const double whole = join(measured, rest[p + 1], measure);
      if (whole < best[p]) {
        best[p] = whole;
        next[p] = static_cast<std::int32_t>(end);
      }
    }
    return true;
  });
  constexpr std::int64_t kMeasuredInAStep = 4;
  count_steps(measured_ends * static_cast<std::int64_t>(range.high - range.low) / kMeasuredInAStep);
  // Leaving a device out, only where that is better.
  for (std::size_t p = model_.devices.size(); p-- > 0;) {
    if (best[p + 1] < best[p]) {
      best[p] = best[p + 1];
      next[p] = static_cast<std::int32_t>(start);
    }
  }
}

std::vector<std::size_t> ChainTable::cuts() const {
  std::vector<std::size_t> cuts{0};
  for (std::size_t p = 0; p + 1 < width_; ++p) {
    cuts.push_back(static_cast<std::size_t>(next_[cuts.back() * width_ + p]));
  }
  return cuts;
}

}  // namespace kerf::partition
