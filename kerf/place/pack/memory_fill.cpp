// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/pack/memory_fill.h"

#include <algorithm>
#include <numeric>

#include "kerf/base/infinity.h"
#include "kerf/base/stop_clock.h"

namespace kerf::place {
namespace {

class Filler {
 public:
  explicit Filler(const Instance& units)
      : units_(units),
        bytes_(units.num_devices, 0),
        time_(units.num_devices, 0),
        device_(units.num_tasks(), kNoIndex) {}

  enum class By : std::uint8_t { time, room };

  bool fits(std::uint32_t unit, std::uint32_t device) const {
    return units_.runs_on(unit, device) &&
           bytes_[device] + units_.bytes[unit] <= units_.memory[device];
  }
  void put(std::uint32_t unit, std::uint32_t device) {
    device_[unit] = device;
    bytes_[device] += units_.bytes[unit];
    time_[device] += units_.time(unit, device);
  }
  // The accelerator that is done first, or has the most room; the CPU when none has any.
  bool put_best(std::uint32_t unit, By by) {
    std::uint32_t best = kNoIndex;
    double least = 0;
    for (std::uint32_t d = 0; d < units_.cpu; ++d) {
      if (!fits(unit, d)) continue;
      const double key =
          by == By::time ? time_[d] + units_.time(unit, d) : bytes_[d] - units_.memory[d];
      if (best != kNoIndex && key >= least) continue;
      best = d;
      least = key;
    }
    if (best == kNoIndex && units_.has_cpu() && fits(unit, units_.cpu)) best = units_.cpu;
    if (best != kNoIndex) put(unit, best);
    return best != kNoIndex;
  }
  std::vector<std::uint32_t> take() { return std::move(device_); }

 private:
  const Instance& units_;
  std::vector<double> bytes_, time_;  // by device
  std::vector<std::uint32_t> device_;
};

// What must be on the CPU first: the others may have to do with the room that it leaves.
std::vector<std::uint32_t> by_bytes(const Instance& units, double noise, Rng& rng) {
  std::vector<double> key(units.num_tasks());
  for (std::size_t u = 0; u < key.size(); ++u) {
    key[u] = units.bytes[u] * (1 + noise * rng.uniform());
  }
  std::vector<std::uint32_t> order(units.num_tasks());
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
    count_steps(std::int64_t{units.num_tasks()} * (units.num_devices + 10));
    Filler filler(units);
    bool all = true;
    // Time first; when memory is what is short, the most room.
    for (const std::uint32_t unit : by_bytes(units, i < 2 ? 0 : 0.5, rng)) {
      all = all && filler.put_best(unit, i % 2 == 0 ? Filler::By::time : Filler::By::room);
    }
    if (all) return filler.take();
  }
  return Packer(units, by_bytes(units, 0, rng)).pack();
}

std::optional<std::vector<std::uint32_t>> random_fill(const Instance& units, const StopClock& clock,
                                                      Rng& rng) {
  std::vector<std::uint32_t> order(units.num_tasks());
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  Filler filler(units);
  bool all = true;
  for (const std::uint32_t unit : order) {
    const auto wish = units.cpu == 0 ? kNoIndex : static_cast<std::uint32_t>(rng.below(units.cpu));
    if (wish != kNoIndex && filler.fits(unit, wish)) {
      filler.put(unit, wish);
    } else {
      all = all && filler.put_best(unit, Filler::By::room);
    }
  }
  if (all) return filler.take();
  return fill_memory(units, clock, rng);
}

}  // namespace kerf::place
