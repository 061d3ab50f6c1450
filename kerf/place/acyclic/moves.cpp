// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: a better partition by moving vertices, each to a part between those of its predecessors
// and of its successors. Method: passes of Fiduccia and Mattheyses (1982) over all parts at once:
// the move of the greatest gain first, negative ones too, each vertex once; then back to the best
// state on the way. The largest load is flat almost everywhere, so for stage_time the gain is that
// of a high power sum of the loads.
#include "kerf/place/acyclic/moves.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>
#include <vector>

#include "kerf/base/infinity.h"
#include "kerf/place/acyclic/part_state.h"

namespace kerf::place::acyclic {
namespace {

constexpr double kRepair = 1e18;  // a gain of what lessens an excess: before all others

class Pass {
 public:
  Pass(const Instance& level, const Goal& goal, PartState& state, int sharpness,
       const MoveOptions& options, Rng& rng, double& work)
      : level_(level),
        goal_(goal),
        state_(state),
        rng_(rng),
        work_(work),
        sharpness_(sharpness),
        most_work_(options.most_work),
        patience_(200 + std::min(3000.0, options.patience * level.num_units())),
        stamp_(level.num_units(), 0),
        is_done_(level.num_units(), false),
        seen_(level.num_units(), kNoIndex) {
    const double heaviest =
        level.accelerator_time.empty() ? 0 : *std::ranges::max_element(level.accelerator_time);
    slack_ = std::min(heaviest, 0.25 * goal.total_time / goal.parts());
    best_ = state.score();
    scale_ = 1 / std::max(state.largest_load(), 1e-300);
  }
  // Whether the state got better.
  bool run(const StopClock* clock) {
    fill();
    std::uint32_t since_best = 0;
    std::size_t kept = 0;
    while (!queue_.empty() && since_best < patience_ && work_ < most_work_) {
      const Entry top = queue_.top();
      queue_.pop();
      if (is_done_[top.vertex] || top.stamp != stamp_[top.vertex]) continue;
      const Choice choice = choose(top.vertex);
      if (choice.to == kNoIndex) continue;
      if (choice.gain < top.gain - 1e-12 * std::abs(top.gain)) {
        push(top.vertex, choice.gain);
        continue;
      }
      make(top.vertex, choice.to);
      ++since_best;
      const Score score = state_.score();
      work_ += goal_.parts() * 0.5;
      if (is_better(score, best_)) {
        best_ = score;
        kept = moves_.size();
        since_best = 0;
      }
      if (clock != nullptr && moves_.size() % 256 == 0 && clock->struck()) break;
    }
    for (; moves_.size() > kept; moves_.pop_back()) {
      state_.move(moves_.back().first, moves_.back().second);
    }
    return kept > 0;
  }

 private:
  struct Entry {
    double gain = 0;
    std::uint32_t tie = 0;
    UnitId vertex;
    std::uint32_t stamp = 0;
    bool operator<(const Entry& other) const {
      if (gain != other.gain) return gain < other.gain;
      return tie < other.tie;
    }
  };
  struct Choice {
    double gain = 0;
    SlotId to;
  };

  double degree(UnitId v) const {
    return static_cast<double>(level_.nets[v].size() + level_.successors[v].size() +
                               level_.predecessors[v].size());
  }
  void push(UnitId v, double gain) {
    queue_.push({gain, static_cast<std::uint32_t>(rng_.next() >> 40), v, ++stamp_[v]});
  }
  void consider(UnitId v) {
    const Choice choice = choose(v);
    if (choice.to != kNoIndex) push(v, choice.gain);
  }
  void fill() {
    const bool all = best_.memory > 0 || best_.time > 0 || best_.empty > 0;
    for (UnitId v{0}; v < level_.num_units(); ++v) {
      if (all || level_.nets[v].empty() || state_.is_at_border(v)) consider(v);
    }
    work_ += level_.num_units();
  }
  double power(double load) const {
    double x = load * scale_;
    for (int i = 0; i < sharpness_; ++i) x *= x;
    return x;
  }
  Choice choose(UnitId v) {
    const PartState::Range range = state_.range_of(v);
    const SlotId from = state_.part()[v];
    work_ += 4 + degree(v);
    Choice best;
    if (range.first == range.last) return best;
    if (goal_.is_cut() && state_.count(from) == 1) return best;
    const auto offer = [&](SlotId to) {
      if (to == from || to < range.first || to > range.last) return;
      const Choice choice = judge(v, to);
      if (choice.to.valid() && (!best.to.valid() || choice.gain > best.gain)) best = choice;
    };
    if (range.last - range.first < 6) {
      for (SlotId to = range.first; to <= range.last; ++to) offer(to);
      return best;
    }
    offer(range.first);
    offer(range.last);
    if (from > 0 && from - 1 != range.first) offer(SlotId{from - 1});
    if (from + 1 != range.last) offer(SlotId{from + 1});
    offer(lightest(range));
    return best;
  }
  SlotId lightest(const PartState::Range& range) const {
    SlotId out = range.first;
    for (SlotId p = range.first; p <= range.last; ++p) {
      if (state_.load(p) < state_.load(out)) out = p;
    }
    return out;
  }
  Choice judge(UnitId v, SlotId to) {
    work_ += static_cast<double>(level_.nets[v].size());
    const double memory = state_.memory_excess_change(v, to);
    if (memory > 0) return {};
    const double time = state_.time_excess_change(v, to);
    if (time > 0 && memory >= 0 &&
        state_.time(to) + level_.accelerator_time[v] > goal_.limit[to] + slack_) {
      return {};
    }
    double gain = 0;
    if (goal_.is_cut()) {
      gain = -state_.cut_change(v, to);
    } else {
      const SlotId from = state_.part()[v];
      const SplitState::Change change = state_.change_of(v, to);
      const double left = state_.load(from) + change.from;
      const double entered = state_.load(to) + change.to;
      gain = power(state_.load(from)) + power(state_.load(to)) - power(left) - power(entered);
    }
    const bool fills = goal_.is_cut() && state_.count(to) == 0;
    if (memory < 0 || time < 0 || fills) gain += kRepair;
    return {gain, to};
  }
  void make(UnitId v, SlotId to) {
    const SlotId from = state_.part()[v];
    moves_.emplace_back(v, from);
    is_done_[v] = true;
    state_.move(v, to);
    const auto mark = static_cast<std::uint32_t>(moves_.size());
    const auto visit = [&](UnitId u) {
      if (is_done_[u] || seen_[u] == mark) return;
      seen_[u] = mark;
      if (degree(u) <= kManyNeighbours) consider(u);
    };
    for (const NetId net : level_.nets[v]) {
      // Of large nets few pins see a change.
      if (level_.pins[net].size() > kManyPins) continue;
      for (const UnitId u : level_.pins[net]) visit(u);
    }
    const auto visit_some = [&](std::span<const UnitId> row) {
      for (const UnitId u : row.first(std::min<std::size_t>(row.size(), kManyPins))) {
        visit(u);
      }
    };
    visit_some(level_.successors[v]);
    visit_some(level_.predecessors[v]);
  }

  static constexpr double kManyNeighbours = 400;
  static constexpr std::size_t kManyPins = 200;
  const Instance& level_;
  const Goal& goal_;
  PartState& state_;
  Rng& rng_;
  double& work_;
  int sharpness_;
  double most_work_;
  double patience_;
  Numbers stamp_;
  std::vector<bool> is_done_;
  Numbers seen_;  // the move after which a vertex was last considered
  double slack_ = 0;
  double scale_ = 1;
  Score best_;
  std::priority_queue<Entry> queue_;
  std::vector<std::pair<UnitId, SlotId>> moves_;  // vertex, where it was
};

}  // namespace

void improve(const Instance& level, const Goal& goal, const MoveOptions& options, Split& part,
             Rng& rng, const StopClock* clock, double& work) {
  if (goal.parts() < 2 || level.num_units() < 2) return;
  PartState state(level, goal, part);
  work += 2.0 * (static_cast<double>(level.num_units()) + level.num_nets());
  int failures = 0;
  for (int i = 0; i < options.passes && failures < (goal.is_cut() ? 1 : 2); ++i) {
    if (work >= options.most_work) break;
    if (clock != nullptr && clock->struck()) break;
    const int sharpness = i % 2 == 0 ? 3 : 5;
    Pass pass(level, goal, state, sharpness, options, rng, work);
    failures = pass.run(clock) ? 0 : failures + 1;
  }
  part.assign(state.part().begin(), state.part().end());
}

}  // namespace kerf::place::acyclic
