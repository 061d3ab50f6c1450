// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/pack/memory_fill.h"

#include <algorithm>
#include <span>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/pack/bins.h"

namespace kerf::place {
namespace {

enum class By : std::uint8_t { time, room };

// The accelerator that is done first, or has the most room; the CPU when none has any.
bool put_best(const Instance& units, UnitId unit, By by, Bins& bins) {
  const std::span<const UnitId> one(&unit, 1);
  std::optional<SlotId> best;
  if (by == By::time) {
    best = bins.done_first(one, units.cpu);
  } else {
    for (SlotId d{0}; d < units.cpu; ++d) {
      if (bins.fits(one, d) && (!best || bins.room(d) > bins.room(*best))) best = d;
    }
  }
  if (!best && units.has_cpu() && bins.fits(one, units.cpu)) best = units.cpu;
  if (best) bins.put(one, *best);
  return best.has_value();
}

// What must be on the CPU first: the others may have to do with the room that it leaves.
Order by_bytes(const Instance& units, double noise, Rng& rng) {
  std::vector<double> key(units.num_units());
  for (std::size_t u = 0; u < key.size(); ++u) {
    key[u] = units.bytes[u] * (1 + noise * rng.uniform());
  }
  std::vector<UnitId> order = count_up<UnitId>(units.num_units());
  std::stable_sort(order.begin(), order.end(), [&](UnitId a, UnitId b) {
    const auto on_a = units.on_accelerator[a];
    const auto on_b = units.on_accelerator[b];
    return on_a == on_b ? key[a] > key[b] : on_a < on_b;
  });
  return order;
}

// Depth first over all packings, devices with the most room first. Finds one if there is one, as
// far as its steps go.
class Packer {
 public:
  Packer(const Instance& units, std::vector<UnitId> order)
      : units_(units), order_(std::move(order)), bytes_(units.num_devices, 0) {
    device_.resize(order_.size());
  }

  std::optional<Split> pack() {
    constexpr std::size_t kMostUnits = 1000;  // deeper searches would end nowhere
    if (order_.size() > kMostUnits || !place(0)) return std::nullopt;
    return device_;
  }

 private:
  double room(SlotId device) const { return units_.memory[device] - bytes_[device]; }

  bool place(std::size_t i) {
    constexpr int kMostSteps = 100000;
    if (i == order_.size()) return true;
    if (++steps_ > kMostSteps) return false;
    count_steps(units_.num_devices + 10);
    const UnitId unit = order_[i];
    std::vector<SlotId> tried;
    for (SlotId d{0}; d < units_.num_devices; ++d) {
      if (units_.runs_on(unit, d) && bytes_[d] + units_.bytes[unit] <= units_.memory[d]) {
        tried.push_back(d);
      }
    }
    std::stable_sort(tried.begin(), tried.end(),
                     [&](SlotId a, SlotId b) { return room(a) > room(b); });
    double last = -1;
    for (const SlotId d : tried) {
      // Accelerators with equal room are the same to what follows.
      if (d != units_.cpu && room(d) == last) continue;
      if (d != units_.cpu) last = room(d);
      const double before = bytes_[d];
      bytes_[d] += units_.bytes[unit];
      device_[unit] = d;
      if (place(i + 1)) return true;
      bytes_[d] = before;
    }
    return false;
  }

  const Instance& units_;
  std::vector<UnitId> order_;
  std::vector<double> bytes_;  // by device
  std::vector<SlotId> device_;
  int steps_ = 0;
};

}  // namespace

std::optional<Split> fill_memory(const Instance& units, const StopClock& clock, Rng& rng) {
  constexpr int kTries = 200;
  constexpr int kLeastTries = 4;  // also after the clock has struck
  for (int i = 0; i < kTries && (i < kLeastTries || !clock.struck()); ++i) {
    count_steps(std::int64_t{units.num_units()} * (units.num_devices + 10));
    Bins bins(units);
    bool all = true;
    // Time first; when memory is what is short, the most room.
    for (const UnitId unit : by_bytes(units, i < 2 ? 0 : 0.5, rng)) {
      all = all && put_best(units, unit, i % 2 == 0 ? By::time : By::room, bins);
    }
    if (all) return bins.take_devices();
  }
  return Packer(units, by_bytes(units, 0, rng)).pack();
}

std::optional<Split> random_fill(const Instance& units, const StopClock& clock, Rng& rng) {
  std::vector<UnitId> order = count_up<UnitId>(units.num_units());
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  Bins bins(units);
  bool all = true;
  for (const UnitId unit : order) {
    const std::span<const UnitId> one(&unit, 1);
    const SlotId wish = units.cpu == 0 ? SlotId{} : SlotId{rng.below(units.cpu)};
    if (wish.valid() && bins.fits(one, wish)) {
      bins.put(one, wish);
    } else {
      all = all && put_best(units, unit, By::room, bins);
    }
  }
  if (all) return bins.take_devices();
  return fill_memory(units, clock, rng);
}

}  // namespace kerf::place
