// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/order/grow.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kerf/base/infinity.h"

namespace kerf::place {
namespace {

// Keeps what grow_order knows of tensors: how many of their units are placed.
class Frontier {
 public:
  explicit Frontier(const Instance& units)
      : units_(units), placed_(units.num_nets(), 0), state_(units.num_units(), kFar) {}

  bool placed(UnitId unit) const { return state_[unit] == kPlaced; }
  std::span<const UnitId> open() const { return open_; }

  void place(UnitId unit) {
    if (state_[unit] == kOpen) {
      // From the end: that is where recent ones are, and they are looked at first.
      const auto at = std::find(open_.rbegin(), open_.rend(), unit);
      open_.erase(std::next(at).base());
    }
    state_[unit] = kPlaced;
    for (const NetId net : units_.nets[unit]) {
      if (placed_[net]++ > 0) continue;
      for (const UnitId other : units_.pins[net]) {
        if (state_[other] != kFar) continue;
        state_[other] = kOpen;
        open_.push_back(other);
      }
    }
  }

  // What the open tensors cost more once `unit` is placed.
  double growth(UnitId unit) const {
    double growth = 0;
    for (const NetId net : units_.nets[unit]) {
      if (placed_[net] == 0) growth += units_.cost[net];
      if (placed_[net] + 1 == units_.pins.length(net)) growth -= units_.cost[net];
    }
    return growth;
  }

 private:
  enum State : std::uint8_t { kFar, kOpen, kPlaced };
  const Instance& units_;
  std::vector<std::uint32_t> placed_;
  std::vector<State> state_;
  std::vector<UnitId> open_;
};

UnitId next_open(const Frontier& frontier, double noise, Rng& rng) {
  UnitId best;
  double least = kInfinity;
  // Of a wide frontier only the latest, so that long orders take linear time.
  constexpr std::size_t kLooked = 128;
  const auto open = frontier.open();
  for (const UnitId unit : open.last(std::min(open.size(), kLooked))) {
    const double growth = frontier.growth(unit);
    const double key = growth + (growth < 0 ? -growth : growth) * noise * rng.uniform();
    if (key >= least) continue;
    least = key;
    best = unit;
  }
  return best;
}

}  // namespace

Order grow_order(const Instance& units, UnitId first, double noise, const StopClock& clock,
                 Rng& rng) {
  constexpr std::size_t kUnitsBetweenLooks = 256;
  Frontier frontier(units);
  Order order;
  UnitId unplaced{0};
  for (UnitId next{first}; next.valid();) {
    frontier.place(next);
    order.push_back(next);
    if (order.size() % kUnitsBetweenLooks == 0 && clock.struck()) break;
    next = next_open(frontier, noise, rng);
    if (next.valid()) continue;
    // Nothing hangs on what is placed: go on with another component.
    while (unplaced < units.num_units() && frontier.placed(unplaced)) ++unplaced;
    if (unplaced < units.num_units()) next = unplaced;
  }
  for (UnitId u{0}; order.size() < units.num_units(); ++u) {
    if (!frontier.placed(u)) order.push_back(u);
  }
  return order;
}

Order reach_order(const Instance& units, Rng& rng) {
  std::vector<std::vector<UnitId>> readers(units.num_units());
  for (NetId net{0}; net < units.num_nets(); ++net) {
    for (const UnitId u : units.pins[net]) {
      if (u != units.source[net]) readers[units.source[net]].push_back(u);
    }
  }
  for (auto& list : readers) {
    for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[rng.below(i)]);
  }
  Order order;
  std::vector<bool> seen(units.num_units(), false);
  std::vector<std::pair<UnitId, std::size_t>> stack;
  for (UnitId root{0}; root < units.num_units(); ++root) {
    if (!seen[root]) stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [unit, next] = stack.back();
      seen[unit] = true;
      if (next == readers[unit].size()) {
        order.push_back(unit);
        stack.pop_back();
        continue;
      }
      const UnitId reader = readers[unit][next++];
      if (!seen[reader]) stack.emplace_back(reader, 0);
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

UnitId far_unit(const Instance& units, UnitId from) {
  std::vector<bool> seen(units.num_units(), false);
  std::vector<bool> crossed(units.num_nets(), false);
  std::vector<UnitId> queue{from};
  seen[from] = true;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const NetId net : units.nets[queue[i]]) {
      if (crossed[net]) continue;
      crossed[net] = true;
      for (const UnitId other : units.pins[net]) {
        if (seen[other]) continue;
        seen[other] = true;
        queue.push_back(other);
      }
    }
  }
  return queue.back();
}

}  // namespace kerf::place
