// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: split a sequence into intervals and give each a device of its own, minimising the
// largest load. Source: the PipeDream recurrence (Narayanan et al. 2019; specs/autopipe.md 2.4)
// with true loads: an interval's load is not monotone (taking in a consumer can save a transfer),
// so all pairs of ends are candidates, except those that bounds rule out. Devices of one kind are
// equal, so a state s says what is used up of each kind, or of an order how far one is:
//   best(s, i) = min over kinds k that s can take, j > i, of max(load_k(i, j), best(s + k, j))
// and, in an order, best(s + 1, i), the device left out. Optimal. O(nodes^2 x states x kinds) at
// worst; states that the bounds rule out (those used up cannot have done what comes before the
// position, or the others not what comes after it) are never visited.
#include "kerf/partition/chain/chain_table.h"

#include <algorithm>

#include "kerf/base/stop_clock.h"

namespace kerf::partition {
namespace {

constexpr std::size_t kMostCells = Lineup::kMostStates;
constexpr std::int64_t kMostWork = 400'000'000;
constexpr std::int64_t kAnyWork = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kFewNodes = 256;  // done in no time, whatever the clock says

}  // namespace

bool ChainTable::allocate(const std::vector<bool>& cuttable) {
  std::int32_t rows = 0;
  row_.assign(cuttable.size(), -1);
  for (std::size_t p = 0; p < cuttable.size(); ++p) {
    if (cuttable[p]) row_[p] = rows++;
  }
  const std::size_t cells = num_states() * static_cast<std::size_t>(rows);
  if (cells > kMostCells && !lineup_.is_ordered()) return false;
  best_.assign(cells, kInfinity);
  reached_.assign(static_cast<std::size_t>(rows), false);
  if (!sums_.empty()) return true;
  for (std::size_t s = 0; s < num_states(); ++s) {
    by_speed_.push_back(static_cast<LineState>(s));
    sums_.push_back(lineup_.sums(by_speed_.back()));
  }
  std::stable_sort(by_speed_.begin(), by_speed_.end(), [&](LineState a, LineState b) {
    return sums_[a].speed_used < sums_[b].speed_used;
  });
  return true;
}

bool ChainTable::solve(const std::vector<bool>& cuttable, Measure measure, double cap) {
  return solve_all(cuttable, measure, cap, intervals_.num_nodes() > kFewNodes);
}

void ChainTable::solve_anyhow(const std::vector<bool>& cuttable, Measure measure, double cap) {
  const bool solved = solve_all(cuttable, measure, cap, false);
  KERF_CHECK(solved, "only tables of devices in order can be solved whatever it takes");
}

bool ChainTable::solve_all(const std::vector<bool>& cuttable, Measure measure, double cap,
                           bool in_time) {
  if (!allocate(cuttable)) return false;
  measure_ = measure;
  cap_ = cap;
  work_left_ = lineup_.is_ordered() ? kAnyWork : kMostWork;
  std::fill(best_.end() - static_cast<std::ptrdiff_t>(num_states()), best_.end(), 0.0);
  reached_.back() = true;
  constexpr std::int64_t kWorkOfAStep = 8;
  std::int64_t counted = work_left_;
  for (std::size_t start = intervals_.num_nodes(); start-- > 0 && work_left_ > 0;) {
    if (!cuttable[start]) continue;
    count_steps((counted - work_left_) / kWorkOfAStep);
    counted = work_left_;
    if (deadline_passed() && in_time) return false;
    solve_from(start, cuttable);
  }
  return work_left_ > 0;
}

bool ChainTable::useful(const Lineup::Sums& sums, std::size_t position) const {
  if (sums.left == 0 || (sums.used == 0 && position > 0)) return false;
  if (sums.used > 0 && position == 0 && !lineup_.is_ordered()) return false;
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
  const Rate link = lineup_.best_link();
  const double receiving = link.latency * static_cast<double>(crossing.count) +
                           link.per_byte * static_cast<double>(crossing.bytes);
  return before <= cap_ * sums.speed_used * kSlack &&
         after + receiving * lineup_.slowest_speed() <= cap_ * sums.speed_left * kSlack;
}

void ChainTable::find_moves(std::size_t start) {
  for (Moves& moves : moves_) {
    moves.states.clear();
    moves.low = moves.high = 0;
  }
  work_left_ -= static_cast<std::int64_t>(num_states());
  for (const LineState state : by_speed_) {
    if (!useful(sums_[state], start)) continue;
    for (std::size_t k = 0; k < moves_.size(); ++k) {
      if (lineup_.can_take(state, k)) moves_[k].states.push_back(state);
    }
  }
}

// Those before low can never again have done what comes before `end`; from high on, what comes
// after it is too much for what would be left.
void ChainTable::narrow(std::size_t k, std::size_t end) {
  Moves& moves = moves_[k];
  if (measure_ == Measure::overflow || cap_ == kInfinity) {
    moves.high = moves.states.size();
    return;
  }
  const double before = intervals_.work_before(end);
  const double after = intervals_.work_before(intervals_.num_nodes()) - before;
  const auto then = [&](std::size_t m) -> const Lineup::Sums& {
    return sums_[moves.states[m] + lineup_.kinds()[k].step];
  };
  while (moves.low < moves.states.size() && before > cap_ * then(moves.low).speed_used * kSlack) {
    ++moves.low;
  }
  while (moves.high < moves.states.size() && after <= cap_ * then(moves.high).speed_left * kSlack) {
    ++moves.high;
  }
}

// Time and least memory only grow: is nothing further on within the cap?
bool ChainTable::hopeless(std::size_t k, const IntervalFigures& figures, double cap) const {
  const DeviceModel& device = lineup_.kinds()[k].model;
  if (measure_ != Measure::overflow) {
    return figures.time * device.slowness > cap * kSlack || figures.least_memory() > device.limit;
  }
  return device.limit != kNoLimit &&
         static_cast<double>(figures.least_memory() - device.limit) > cap;
}

double ChainTable::measured(std::size_t k, const IntervalFigures& figures) const {
  return measure_of(lineup_.kinds()[k].model, figures, lineup_.model().n_microbatches, measure_);
}

void ChainTable::solve_from(std::size_t start, const std::vector<bool>& cuttable) {
  find_moves(start);
  std::vector<std::size_t> open;
  for (std::size_t k = 0; k < moves_.size(); ++k) {
    if (!moves_[k].states.empty()) open.push_back(k);
  }
  if (open.empty()) return;
  intervals_.scan(start, [&](std::size_t end, const IntervalFigures& figures) {
    std::erase_if(open, [&](std::size_t k) {
      return moves_[k].low == moves_[k].states.size() || hopeless(k, figures, cap_);
    });
    if (open.empty() || work_left_ <= 0) return false;
    if (!cuttable[end] || !reached_[static_cast<std::size_t>(row_[end])]) return true;
    for (const std::size_t k : open) {
      narrow(k, end);
      take(k, start, end, figures);
    }
    return true;
  });
  if (!lineup_.is_ordered()) return;
  double* const best = &best_[static_cast<std::size_t>(row_[start]) * num_states()];
  for (std::size_t s = num_states() - 1; s-- > 0;) best[s] = std::min(best[s], best[s + 1]);
}

// One more device of kind k from `start` to `end`.
void ChainTable::take(std::size_t k, std::size_t start, std::size_t end,
                      const IntervalFigures& figures) {
  const Moves& moves = moves_[k];
  if (moves.low >= moves.high) return;
  const double value = measured(k, figures);
  if (value > cap_ || value == kInfinity) return;
  const auto row = static_cast<std::size_t>(row_[start]);
  double* const best = &best_[row * num_states()];
  const double* const rest =
      &best_[static_cast<std::size_t>(row_[end]) * num_states()] + lineup_.kinds()[k].step;
  work_left_ -= static_cast<std::int64_t>(moves.high - moves.low);
  bool reached = false;
  for (std::size_t m = moves.low; m < moves.high; ++m) {
    const LineState state = moves.states[m];
    const double whole = join(value, rest[state], measure_);
    if (whole >= best[state]) continue;
    best[state] = whole;
    reached = true;
  }
  if (reached) reached_[row] = true;
}

ChainTable::Step ChainTable::best_step(LineState state, std::size_t start) const {
  const double least = best(state, start);
  Step step{start, 0};
  std::vector<std::size_t> open;
  for (std::size_t k = 0; k < moves_.size(); ++k) {
    if (lineup_.can_take(state, k)) open.push_back(k);
  }
  intervals_.scan(start, [&](std::size_t end, const IntervalFigures& figures) {
    std::erase_if(open, [&](std::size_t k) { return hopeless(k, figures, least); });
    if (open.empty()) return false;
    if (row_[end] < 0) return true;
    for (const std::size_t k : open) {
      const double value = measured(k, figures);
      if (value > cap_) continue;
      if (join(value, best(state + lineup_.kinds()[k].step, end), measure_) > least) continue;
      step = {end, k};
      return false;
    }
    return true;
  });
  KERF_CHECK(step.end > start || lineup_.is_ordered(),
             "the table holds a value that no step reaches");
  return step;
}

Arrangement ChainTable::arrangement() const {
  KERF_CHECK(best() != kInfinity, "there is no arrangement");
  Arrangement found;
  LineState state = 0;
  while (found.cuts.back() < intervals_.num_nodes()) {
    const Step step = best_step(state, found.cuts.back());
    if (step.end == found.cuts.back()) {
      ++state;
      continue;
    }
    found.devices.push_back(lineup_.next_device(state, step.kind));
    found.cuts.push_back(step.end);
    state += lineup_.kinds()[step.kind].step;
  }
  return found;
}

}  // namespace kerf::partition
