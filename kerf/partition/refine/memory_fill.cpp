// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/refine/memory_fill.h"

#include <algorithm>
#include <numeric>

namespace kerf::partition {
namespace {

constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

class Filler {
 public:
  explicit Filler(const FlatUnits& units)
      : units_(units),
        has_cpu_(units.num_devices > units.cpu),
        bytes_(units.cpu, 0),
        time_(units.cpu, 0),
        device_(units.num_units(), kNone) {}

  bool fits(std::uint32_t unit, std::uint32_t device) const {
    return units_.on_accelerator[unit] != 0 && bytes_[device] + units_.bytes[unit] <= units_.memory;
  }
  void put(std::uint32_t unit, std::uint32_t device) {
    device_[unit] = device;
    if (device == units_.cpu) return;
    bytes_[device] += units_.bytes[unit];
    time_[device] += units_.accelerator_time[unit];
  }
  // By `key` among the accelerators with room, least first.
  bool put_least(std::uint32_t unit, const std::vector<double>& key) {
    std::uint32_t best = has_cpu_ ? units_.cpu : kNone;
    for (std::uint32_t d = 0; d < units_.cpu; ++d) {
      if (!fits(unit, d)) continue;
      if (best == kNone || best == units_.cpu || key[d] < key[best]) best = d;
    }
    if (best != kNone) put(unit, best);
    return best != kNone;
  }
  const std::vector<double>& time() const { return time_; }
  const std::vector<double>& bytes() const { return bytes_; }
  std::vector<std::uint32_t> take() { return std::move(device_); }

 private:
  const FlatUnits& units_;
  bool has_cpu_;
  std::vector<double> bytes_, time_;  // by accelerator
  std::vector<std::uint32_t> device_;
};

std::vector<std::uint32_t> by_bytes(const FlatUnits& units, double noise, Rng& rng) {
  std::vector<double> key(units.num_units());
  for (std::size_t u = 0; u < key.size(); ++u) {
    key[u] = units.bytes[u] * (1 + noise * rng.uniform());
  }
  std::vector<std::uint32_t> order(units.num_units());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return key[a] > key[b]; });
  return order;
}

}  // namespace

std::optional<std::vector<std::uint32_t>> fill_memory(const FlatUnits& units, Rng& rng) {
  constexpr int kTries = 200;
  for (int i = 0; i < kTries; ++i) {
    Filler filler(units);
    bool all = true;
    // Time first; when memory is what is short, the emptiest by bytes.
    for (const std::uint32_t unit : by_bytes(units, i < 2 ? 0 : 0.5, rng)) {
      all = all && filler.put_least(unit, i % 2 == 0 ? filler.time() : filler.bytes());
    }
    if (all) return filler.take();
  }
  return std::nullopt;
}

std::optional<std::vector<std::uint32_t>> random_fill(const FlatUnits& units, Rng& rng) {
  std::vector<std::uint32_t> order(units.num_units());
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  Filler filler(units);
  bool all = true;
  for (const std::uint32_t unit : order) {
    const auto wish = units.cpu == 0 ? kNone : static_cast<std::uint32_t>(rng.below(units.cpu));
    if (wish != kNone && filler.fits(unit, wish)) {
      filler.put(unit, wish);
    } else {
      all = all && filler.put_least(unit, filler.bytes());
    }
  }
  if (all) return filler.take();
  return fill_memory(units, rng);
}

}  // namespace kerf::partition
