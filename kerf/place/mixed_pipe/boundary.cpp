// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/mixed_pipe/boundary.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "kerf/base/stop_clock.h"

namespace kerf::place {
namespace {

constexpr double kGain = 1 - 1e-9;  // less is rounding

struct Step {
  UnitId unit;
  SlotId to;
  std::optional<UnitId> other;  // comes back in exchange
  double load = 0;              // the larger of both devices'
};

class BorderClimber {
 public:
  BorderClimber(const Instance& units, SplitState& state, std::int64_t steps)
      : units_(units), state_(state), steps_(steps), on_(units.num_devices) {
    for (UnitId u{0}; u < units.num_units(); ++u) on_[state.device(u)].push_back(u);
  }

  void run(const StopClock& clock) {
    while (steps_ > 0 && !clock.struck()) {
      const std::int64_t before = steps_;
      const SlotId busiest = busiest_device();
      std::optional<Step> step = best_move(busiest);
      if (!step) step = best_swap(busiest);
      count_steps((before - steps_) / kWorkOfAStep);
      if (!step) return;
      take(*step);
    }
  }

 private:
  SlotId busiest_device() const {
    SlotId busiest{0};
    for (SlotId d{1}; d < units_.num_devices; ++d) {
      if (state_.load(d) > state_.load(busiest)) busiest = d;
    }
    return busiest;
  }

  // Devices of units that share a tensor with this one.
  void find_neighbours(UnitId unit) {
    near_.clear();
    for (const NetId net : units_.nets[unit]) {
      for (const UnitId pin : units_.pins[net]) {
        --steps_;
        const SlotId device = state_.device(pin);
        if (device == state_.device(unit)) continue;
        if (std::find(near_.begin(), near_.end(), device) == near_.end()) near_.push_back(device);
        if (near_.size() + 1 == units_.num_devices) return;
      }
    }
  }

  void offer(std::optional<Step>& best, Step step) const {
    if (!best || step.load < best->load) best = step;
  }

  std::optional<Step> best_move(SlotId from) {
    std::optional<Step> best;
    borders_.clear();
    for (const UnitId unit : on_[from]) {
      find_neighbours(unit);
      if (!near_.empty()) borders_.push_back(unit);
      for (const SlotId to : near_) {
        if (!state_.fits(unit, to)) continue;
        const SplitState::Change change = state_.peek(unit, to);
        const double load = std::max(state_.load(from) + change.from, state_.load(to) + change.to);
        if (load < state_.load(from) * kGain) offer(best, {unit, to, {}, load});
      }
    }
    return best;
  }

  // Units at the border of the busiest device against units of its neighbours at their borders.
  std::optional<Step> best_swap(SlotId from) {
    constexpr std::size_t kMost = 64;  // borders looked at, each side
    std::optional<Step> best;
    for (std::size_t i = 0; i < std::min(borders_.size(), kMost); ++i) {
      const UnitId unit = borders_[i];
      find_neighbours(unit);
      for (const SlotId to : std::vector<SlotId>(near_)) {
        if (!units_.runs_on(unit, to)) continue;
        std::size_t looked = 0;
        for (const UnitId other : on_[to]) {
          --steps_;
          if (looked == kMost || steps_ <= 0) break;
          if (!touches(other, from) || !units_.runs_on(other, from)) continue;
          ++looked;
          if (!state_.swap_fits(unit, other)) continue;
          const SplitState::Change change = state_.peek_swap(unit, other);
          const double load =
              std::max(state_.load(from) + change.from, state_.load(to) + change.to);
          if (load < state_.load(from) * kGain) offer(best, {unit, to, other, load});
        }
      }
    }
    return best;
  }

  bool touches(UnitId unit, SlotId device) {
    for (const NetId net : units_.nets[unit]) {
      for (const UnitId pin : units_.pins[net]) {
        --steps_;
        if (state_.device(pin) == device) return true;
      }
    }
    return false;
  }

  void take(const Step& step) {
    const SlotId from = state_.device(step.unit);
    shift(step.unit, from, step.to);
    if (step.other) shift(*step.other, step.to, from);
  }

  void shift(UnitId unit, SlotId from, SlotId to) {
    state_.move(unit, to);
    on_[from].erase(std::lower_bound(on_[from].begin(), on_[from].end(), unit));
    on_[to].insert(std::lower_bound(on_[to].begin(), on_[to].end(), unit), unit);
  }

  const Instance& units_;
  SplitState& state_;
  std::int64_t steps_;
  std::vector<std::vector<UnitId>> on_;  // by device, ascending
  std::vector<SlotId> near_;
  std::vector<UnitId> borders_;
};

}  // namespace

void improve_borders(const Instance& units, SplitState& state, std::int64_t steps,
                     const StopClock& clock) {
  BorderClimber(units, state, steps).run(clock);
}

}  // namespace kerf::place
