// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: split a sequence into intervals and give each a device of its own, minimising the
// largest load. Devices of one class are equal, so what is left to use is a count for each class:
//   best(u, i) = min over classes k with some left, j > i, of max(load_k(i, j), best(u + k, j))
// with a state for each vector of counts. Optimal. O(nodes^2 x states x classes) at worst; states
// that the bounds rule out (those in use cannot have done what comes before the position, or the
// others not what comes after it) are never visited.
#include "kerf/partition/chain/class_table.h"

#include <algorithm>

#include "kerf/base/stop_clock.h"

namespace kerf::partition {
namespace {

constexpr std::size_t kMostCells = std::size_t{1} << 24;
constexpr std::int64_t kMostWork = 400'000'000;
constexpr std::size_t kFewNodes = 256;  // done in no time, whatever the clock says

}  // namespace

ClassTable::ClassTable(const Intervals& intervals, const ChainModel& model,
                       const std::vector<DeviceClass>& classes)
    : intervals_(intervals), model_(model), classes_(classes), moves_(classes.size()) {
  best_link_ = classes.front().model.in;
  for (const DeviceClass& each : classes) {
    stride_.push_back(static_cast<ClassState>(num_states_));
    num_states_ = std::min(num_states_ * (each.members.size() + 1), kMostCells);
    best_link_.latency = std::min(best_link_.latency, each.model.in.latency);
    best_link_.per_byte = std::min(best_link_.per_byte, each.model.in.per_byte);
    slowest_ = std::min(slowest_, 1 / each.model.slowness);
  }
}

ClassTable::Sums ClassTable::sums_of(ClassState state) const {
  Sums sums;
  for (std::size_t k = 0; k < classes_.size(); ++k) {
    const DeviceModel& device = classes_[k].model;
    const auto count = static_cast<ClassState>(classes_[k].members.size());
    const double used = state / stride_[k] % (count + 1);
    const double left = count - used;
    const double room = device.limit == kNoLimit ? kInfinity : static_cast<double>(device.limit);
    sums.speed_used += used / device.slowness;
    sums.speed_left += left / device.slowness;
    if (used > 0) sums.room_used += used * room;
    if (left > 0) sums.room_left += left * room;
    sums.used += used;
    sums.left += left;
  }
  return sums;
}

bool ClassTable::allocate(const std::vector<bool>& cuttable) {
  std::int32_t rows = 0;
  row_.assign(cuttable.size(), -1);
  for (std::size_t p = 0; p < cuttable.size(); ++p) {
    if (cuttable[p]) row_[p] = rows++;
  }
  if (num_states_ * static_cast<std::size_t>(rows) > kMostCells) return false;
  best_.assign(num_states_ * static_cast<std::size_t>(rows), kInfinity);
  reached_.assign(static_cast<std::size_t>(rows), false);
  if (sums_.empty()) {
    for (std::size_t s = 0; s < num_states_; ++s) {
      by_speed_.push_back(static_cast<ClassState>(s));
      sums_.push_back(sums_of(by_speed_.back()));
    }
    std::stable_sort(by_speed_.begin(), by_speed_.end(), [&](ClassState a, ClassState b) {
      return sums_[a].speed_used < sums_[b].speed_used;
    });
  }
  return true;
}

bool ClassTable::solve(const std::vector<bool>& cuttable, Measure measure, double cap) {
  if (!allocate(cuttable)) return false;
  measure_ = measure;
  cap_ = cap;
  work_left_ = kMostWork;
  const std::size_t end = intervals_.num_nodes();
  std::fill(best_.end() - static_cast<std::ptrdiff_t>(num_states_), best_.end(), 0.0);
  reached_.back() = true;
  constexpr std::int64_t kWorkOfAStep = 8;
  std::int64_t counted = work_left_;
  for (std::size_t start = end; start-- > 0 && work_left_ > 0;) {
    if (!cuttable[start]) continue;
    count_steps((counted - work_left_) / kWorkOfAStep);
    counted = work_left_;
    if (deadline_passed() && end > kFewNodes) return false;
    solve_from(start, cuttable);
  }
  return work_left_ > 0;
}

bool ClassTable::useful(const Sums& sums, std::size_t position) const {
  if (sums.left == 0 || (sums.used == 0) != (position == 0)) return false;
  const auto weights_before = static_cast<double>(intervals_.weights_before(position));
  const auto weights_after = static_cast<double>(intervals_.weights_after(position));
  if (measure_ == Measure::overflow) {
    if (cap_ == kInfinity) return true;
    return weights_before <= sums.room_used + cap_ * sums.used &&
           weights_after <= sums.room_left + cap_ * sums.left;
  }
  if (weights_before > sums.room_used || weights_after > sums.room_left) return false;
  if (cap_ == kInfinity) return true;
  const double before = intervals_.work_before(position);
  const double after = intervals_.work_before(intervals_.num_nodes()) - before;
  // Whatever crosses is received at least once, by one of the others: load, hence work at its
  // speed.
  const Intervals::Crossing& crossing = intervals_.crossing(position);
  const double receiving = best_link_.latency * static_cast<double>(crossing.count) +
                           best_link_.per_byte * static_cast<double>(crossing.bytes);
  return before <= cap_ * sums.speed_used * kSlack &&
         after + receiving * slowest_ <= cap_ * sums.speed_left * kSlack;
}

void ClassTable::find_moves(std::size_t start) {
  for (Moves& moves : moves_) {
    moves.states.clear();
    moves.low = moves.high = 0;
  }
  work_left_ -= static_cast<std::int64_t>(num_states_);
  for (const ClassState state : by_speed_) {
    if (!useful(sums_[state], start)) continue;
    for (std::size_t k = 0; k < classes_.size(); ++k) {
      if (has_left(state, k)) moves_[k].states.push_back(state);
    }
  }
}

// Those before low can never again have done what comes before `end`; from high on, what comes
// after it is too much for what would be left.
void ClassTable::narrow(std::size_t k, std::size_t end) {
  Moves& moves = moves_[k];
  if (measure_ == Measure::overflow || cap_ == kInfinity) {
    moves.high = moves.states.size();
    return;
  }
  const double before = intervals_.work_before(end);
  const double after = intervals_.work_before(intervals_.num_nodes()) - before;
  const auto then = [&](std::size_t m) -> const Sums& {
    return sums_[moves.states[m] + stride_[k]];
  };
  while (moves.low < moves.states.size() && before > cap_ * then(moves.low).speed_used * kSlack) {
    ++moves.low;
  }
  while (moves.high < moves.states.size() && after <= cap_ * then(moves.high).speed_left * kSlack) {
    ++moves.high;
  }
}

// Time and least memory only grow: is nothing further on any good?
bool ClassTable::hopeless(std::size_t k, const IntervalFigures& figures) const {
  const DeviceModel& device = classes_[k].model;
  if (moves_[k].low == moves_[k].states.size()) return true;
  if (measure_ != Measure::overflow) {
    return figures.time * device.slowness > cap_ * kSlack || figures.least_memory() > device.limit;
  }
  return device.limit != kNoLimit &&
         static_cast<double>(figures.least_memory() - device.limit) > cap_;
}

void ClassTable::solve_from(std::size_t start, const std::vector<bool>& cuttable) {
  find_moves(start);
  std::vector<std::size_t> open;
  for (std::size_t k = 0; k < classes_.size(); ++k) open.push_back(k);
  intervals_.scan(start, [&](std::size_t end, const IntervalFigures& figures) {
    std::erase_if(open, [&](std::size_t k) { return hopeless(k, figures); });
    if (open.empty() || work_left_ <= 0) return false;
    if (!cuttable[end] || !reached_[static_cast<std::size_t>(row_[end])]) return true;
    for (const std::size_t k : open) {
      narrow(k, end);
      take(k, start, end, figures);
    }
    return true;
  });
}

// One more device of class k from `start` to `end`.
void ClassTable::take(std::size_t k, std::size_t start, std::size_t end,
                      const IntervalFigures& figures) {
  const Moves& moves = moves_[k];
  if (moves.low >= moves.high) return;
  const double measured = measure_of(classes_[k].model, figures, model_.n_microbatches, measure_);
  if (measured > cap_ || measured == kInfinity) return;
  const auto row = static_cast<std::size_t>(row_[start]);
  double* const best = &best_[row * num_states_];
  const double* const rest = &best_[static_cast<std::size_t>(row_[end]) * num_states_] + stride_[k];
  work_left_ -= static_cast<std::int64_t>(moves.high - moves.low);
  bool reached = false;
  for (std::size_t m = moves.low; m < moves.high; ++m) {
    const ClassState state = moves.states[m];
    const double whole = join(measured, rest[state], measure_);
    if (whole >= best[state]) continue;
    best[state] = whole;
    reached = true;
  }
  if (reached) reached_[row] = true;
}

ClassTable::Step ClassTable::best_step(ClassState state, std::size_t start) const {
  double least = kInfinity;
  Step step{start, 0};
  intervals_.scan(start, [&](std::size_t end, const IntervalFigures& figures) {
    if (row_[end] < 0) return true;
    for (std::size_t k = 0; k < classes_.size(); ++k) {
      if (!has_left(state, k)) continue;
      const double measured =
          measure_of(classes_[k].model, figures, model_.n_microbatches, measure_);
      if (measured > cap_) continue;
      const double whole = join(measured, best(use(state, k), end), measure_);
      if (whole >= least) continue;
      least = whole;
      step = {end, k};
    }
    return true;
  });
  KERF_CHECK(step.end > start, "the table holds a value that no step reaches");
  return step;
}

Arrangement ClassTable::arrangement() const {
  KERF_CHECK(best() != kInfinity, "there is no arrangement");
  Arrangement found;
  found.cuts.push_back(0);
  std::vector<std::size_t> used(classes_.size());
  ClassState state = 0;
  while (found.cuts.back() < intervals_.num_nodes()) {
    const Step step = best_step(state, found.cuts.back());
    found.devices.push_back(classes_[step.device_class].members[used[step.device_class]++]);
    found.cuts.push_back(step.end);
    state = use(state, step.device_class);
  }
  return found;
}

}  // namespace kerf::partition
