// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/pack/memory_fill.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "kerf/base/infinity.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/pack/bins.h"

namespace kerf::place {
namespace {

enum class By : std::uint8_t { time, room };

// The accelerator that is done first, or has the most room; the CPU when none has any.
bool put_best(const Instance& units, std::uint32_t unit, By by, Bins& bins) {
  const std::span<const std::uint32_t> one(&unit, 1);
  std::optional<std::uint32_t> best;
  if (by == By::time) {
    best = bins.done_first(one, units.cpu);
  } else {
    for (std::uint32_t d = 0; d < units.cpu; ++d) {
      if (bins.fits(one, d) && (!best || bins.room(d) > bins.room(*best))) best = d;
    }
  }
  if (!best && units.has_cpu() && bins.fits(one, units.cpu)) best = units.cpu;
  if (best) bins.put(one, *best);
  return best.has_value();
}

// What must be on the CPU first: the others may have to do with the room that it leaves.
std::vector<std::uint32_t> by_bytes(const Instance& units, double noise, Rng& rng) {
  std::vector<double> key(units.num_units());
  for (std::size_t u = 0; u < key.size(); ++u) {
    key[u] = units.bytes[u] * (1 + noise * rng.uniform());
  }
  std::vector<std::uint32_t> order(units.num_units());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
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
  Packer(const Instance& units, std::vector<std::uint32_t> order)
      : units_(units), order_(std::move(order)), bytes_(units.num_devices, 0) {
    device_.resize(order_.size(), kNoIndex);
  }

  std::optional<std::vector<std::uint32_t>> pack() {
    constexpr std::size_t kMostUnits = 1000;  // deeper searches would end nowhere
    if (order_.size() > kMostUnits || !place(0)) return std::nullopt;
    return device_;
  }

 private:
  double room(std::uint32_t device) const { return units_.memory[device] - bytes_[device]; }

  bool place(std::size_t i) {
    constexpr int kMostSteps = 100000;
    if (i == order_.size()) return true;
    if (++steps_ > kMostSteps) return false;
    count_steps(units_.num_devices + 10);
    const std::uint32_t unit = order_[i];
    std::vector<std::uint32_t> tried;
    for (std::uint32_t d = 0; d < units_.num_devices; ++d) {
      if (units_.runs_on(unit, d) && bytes_[d] + units_.bytes[unit] <= units_.memory[d]) {
        tried.push_back(d);
      }
    }
    std::stable_sort(tried.begin(), tried.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return room(a) > room(b); });
    double last = -1;
    for (const std::uint32_t d : tried) {
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
  std::vector<std::uint32_t> order_;
  std::vector<double> bytes_;  // by device
  std::vector<std::uint32_t> device_;
  int steps_ = 0;
};

}  // namespace

std::optional<std::vector<std::uint32_t>> fill_memory(const Instance& units, const StopClock& clock,
                                                      Rng& rng) {
  constexpr int kTries = 200;
  constexpr int kLeastTries = 4;  // also after the clock has struck
  for (int i = 0; i < kTries && (i < kLeastTries || !clock.struck()); ++i) {
    count_steps(std::int64_t{units.num_units()} * (units.num_devices + 10));
    Bins bins(units);
    bool all = true;
    // Time first; when memory is what is short, the most room.
    for (const std::uint32_t unit : by_bytes(units, i < 2 ? 0 : 0.5, rng)) {
      all = all && put_best(units, unit, i % 2 == 0 ? By::time : By::room, bins);
    }
    if (all) return bins.take_devices();
  }
  return Packer(units, by_bytes(units, 0, rng)).pack();
}

std::optional<std::vector<std::uint32_t>> random_fill(const Instance& units, const StopClock& clock,
                                                      Rng& rng) {
  std::vector<std::uint32_t> order(units.num_units());
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  Bins bins(units);
  bool all = true;
  for (const std::uint32_t unit : order) {
    const std::span<const std::uint32_t> one(&unit, 1);
    const auto wish = units.cpu == 0 ? kNoIndex : static_cast<std::uint32_t>(rng.below(units.cpu));
    if (wish != kNoIndex && bins.fits(one, wish)) {
      bins.put(one, wish);
    } else {
      all = all && put_best(units, unit, By::room, bins);
    }
  }
  if (all) return bins.take_devices();
  return fill_memory(units, clock, rng);
}

}  // namespace kerf::place
