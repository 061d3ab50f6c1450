// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: a split of units over devices with the least max load. Method: simulated annealing
// (Kirkpatrick, Gelatt, Vecchi 1983) on a soft maximum of the loads that sharpens as it cools. The
// true maximum is flat almost everywhere; the soft one rewards every saved tensor on every device.
// Devices are weighed by their speed: what a slow one takes over costs it several times what it
// saves another, and weighed alike it would be left well below the load of the others.
// O(nets of the unit) a proposal; the answer is a local optimum at best.
#include "kerf/place/refine/anneal.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kerf/base/stop_clock.h"

namespace kerf::place {

namespace {

// Exponentially distributed numbers, by quantile.
const std::array<double, 4096> kWaits = [] {
  std::array<double, 4096> waits{};
  for (std::size_t i = 0; i < waits.size(); ++i) {
    waits[i] = -std::log((static_cast<double>(i) + 0.5) / static_cast<double>(waits.size()));
  }
  return waits;
}();

// By device, in accelerators of slowness 1; a CPU's as the units that have the choice see it.
// Bounded: a device that counts for nothing would be filled without end.
std::vector<double> speeds_of(const Instance& units) {
  constexpr double kLeast = 1e-3;
  constexpr double kMost = 1e3;
  std::vector<double> speeds;
  for (const double slowness : units.slowness) {
    speeds.push_back(1 / std::clamp(slowness, 1 / kMost, 1 / kLeast));
  }
  if (!units.has_cpu()) return speeds;
  double accelerator = 0;
  double cpu = 0;
  for (UnitId u{0}; u < units.num_units(); ++u) {
    if (units.on_accelerator[u] == 0 || units.on_cpu[u] == 0) continue;
    accelerator += units.accelerator_time[u];
    cpu += units.cpu_time[u];
  }
  speeds.push_back(cpu > 0 ? std::clamp(accelerator / cpu, kLeast, kMost) : 1.0);
  return speeds;
}

class Annealer {
 public:
  Annealer(const Instance& units, std::span<const SlotId> start, Rng& rng)
      : units_(units),
        rng_(rng),
        state_(units, start),
        speed_(speeds_of(units)),
        energy_(units.num_devices, 0) {
    best_.device.assign(start.begin(), start.end());
    best_.busiest = state_.busiest();
  }

  Annealed run(const AnnealSchedule& schedule, double good_enough, const StopClock& clock) {
    constexpr std::int64_t kRoundProposals = 1024;
    // Seldom enough that large problems do not spend their time on it.
    const std::size_t sums = units_.num_nets() * units_.num_devices;
    const int rounds_between = static_cast<int>(std::clamp<std::size_t>(sums / 256, 128, 1 << 20));
    for (int round = 0; best_.work < schedule.work && best_.busiest > good_enough; ++round) {
      if (clock.struck()) break;
      if (round > 0 && round % rounds_between == 0) state_.refresh();
      set_round(schedule, static_cast<double>(best_.work) / static_cast<double>(schedule.work));
      const std::int64_t before = best_.work;
      for (std::int64_t i = 0; i < kRoundProposals; ++i) propose();
      count_steps((best_.work - before) / kWorkOfAStep);
    }
    return std::move(best_);
  }

 private:
  // `done` of the schedule is behind us.
  void set_round(const AnnealSchedule& schedule, double done) {
    const double heat =
        schedule.first_heat * std::pow(schedule.last_heat / schedule.first_heat, done);
    const double sharpness = schedule.first_sharpness *
                             std::pow(schedule.last_sharpness / schedule.first_sharpness, done);
    scale_ = sharpness / 64 / std::max(best_.busiest, 1e-300);
    zero_ = best_.busiest;
    slack_ = heat * sharpness;
    total_ = 0;
    for (SlotId d{0}; d < units_.num_devices; ++d) {
      total_ += energy_[d] = energy_of(d, state_.load(d));
    }
  }

  // exp(x) as (1 + x / 64)^64: as good a stand-in, and a fraction of the time.
  double energy_of(SlotId device, double load) const {
    double power = std::max(0.0, 1 + scale_ * (load - zero_));
    for (int i = 0; i < 6; ++i) power *= power;
    return speed_[device] * power;
  }

  // Two choices from one draw: dividing, as Rng::below does, takes longer than a peek.
  struct Draw {
    std::uint64_t bits;
    std::uint32_t first(std::size_t bound) const {
      return static_cast<std::uint32_t>(((bits >> 32) * bound) >> 32);
    }
    std::uint32_t second(std::size_t bound) const {
      return static_cast<std::uint32_t>(((bits & 0xffffffffU) * bound) >> 32);
    }
  };

  void propose() {
    constexpr std::uint32_t kSwapPerMille = 300;
    const Draw draw{rng_.next()};
    const UnitId unit{draw.first(units_.num_units())};
    best_.work += kWorkPerProposal + static_cast<std::int64_t>(units_.nets[unit].size());
    if (draw.second(1000) < kSwapPerMille) {
      propose_swap(unit, UnitId{Draw{rng_.next()}.first(units_.num_units())});
    } else {
      propose_move(unit, random_target(unit));
    }
  }

  // Where one of its neighbours is, or anywhere.
  SlotId random_target(UnitId unit) {
    const auto nets = units_.nets[unit];
    const Draw draw{rng_.next()};
    if (nets.empty() || (draw.bits & 1) == 0) return SlotId{draw.first(units_.num_devices)};
    const auto pins = units_.pins[nets[draw.first(nets.size())]];
    return state_.device(pins[draw.second(pins.size())]);
  }

  void propose_move(UnitId unit, SlotId to) {
    const SlotId from = state_.device(unit);
    if (from == to || !state_.fits(unit, to)) return;
    const SplitState::Change change = state_.peek(unit, to);
    const double left = energy_of(from, state_.load(from) + change.from);
    const double joined = energy_of(to, state_.load(to) + change.to);
    if (!accepts(from, to, left, joined)) return;
    state_.move(unit, to, change);
    note(unit);
    settle(from, to, left, joined);
  }

  void propose_swap(UnitId unit, UnitId other) {
    const SlotId from = state_.device(unit);
    const SlotId to = state_.device(other);
    if (from == to || !units_.runs_on(unit, to) || !units_.runs_on(other, from)) return;
    best_.work += static_cast<std::int64_t>(units_.nets[other].size());
    if (!state_.swap_fits(unit, other)) return;
    const SplitState::Change change = state_.peek_swap(unit, other);
    const double left = energy_of(from, state_.load(from) + change.from);
    const double joined = energy_of(to, state_.load(to) + change.to);
    if (!accepts(from, to, left, joined)) return;
    state_.move(unit, to);
    state_.move(other, from);
    note(unit);
    note(other);
    settle(from, to, left, joined);
  }

  bool accepts(SlotId from, SlotId to, double left, double joined) {
    const double after = total_ - energy_[from] - energy_[to] + left + joined;
    if (after <= total_) return true;
    // exp(more) nearly; it is small, and any rule of acceptance will do.
    const double more = slack_ * kWaits[rng_.next() % kWaits.size()];
    return after < total_ * (1 + more + more * more / 2);
  }

  void settle(SlotId from, SlotId to, double left, double joined) {
    total_ += left + joined - energy_[from] - energy_[to];
    energy_[from] = left;
    energy_[to] = joined;
    if (state_.load(from) >= best_.busiest || state_.load(to) >= best_.busiest) return;
    const double busiest = state_.busiest();
    // Gains below what rounding makes up would be chased for ever.
    if (busiest >= best_.busiest * (1 - 1e-11)) return;
    best_.busiest = busiest;
    for (const UnitId unit : moved_) best_.device[unit] = state_.device(unit);
    if (moved_.size() == units_.num_units()) {
      best_.device.assign(state_.devices().begin(), state_.devices().end());
    }
    moved_.clear();
  }

  // Copying all of a large split for every small gain would take most of the time.
  void note(UnitId unit) {
    if (moved_.size() < units_.num_units()) moved_.push_back(unit);
  }

  const Instance& units_;
  Rng& rng_;
  SplitState state_;
  Annealed best_;
  std::vector<UnitId> moved_;   // since best_; as many as there are units: any
  std::vector<double> speed_;   // by device
  std::vector<double> energy_;  // by device
  double total_ = 0;
  double scale_ = 0;  // sharpness / 64, in loads
  double zero_ = 0;   // load whose energy is 1
  double slack_ = 0;  // heat x sharpness
};

}  // namespace

Annealed anneal(const Instance& units, std::span<const SlotId> start,
                const AnnealSchedule& schedule, double good_enough, const StopClock& clock,
                Rng& rng) {
  return Annealer(units, start, rng).run(schedule, good_enough, clock);
}

}  // namespace kerf::place
