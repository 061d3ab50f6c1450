// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/order/orders.h"

#include <algorithm>
#include <utility>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/base/topological_order.h"

namespace kerf::place {
namespace {

constexpr std::size_t kLook = 64;  // ready units that a choice compares

template <class Choose>
Order take(const Instance& instance, const Stages& stages, Choose&& choose) {
  Waiting waiting(instance.successors, instance.predecessors);
  return take_in_turn(waiting, waiting.first(), stages, choose);
}

// Next is the unit after which the nets that cross from before to after cost least.
class LeastCrossing {
 public:
  LeastCrossing(const Instance& instance, StepClock& clock)
      : instance_(instance), clock_(clock), placed_(instance.num_nets(), 0) {}
  std::size_t operator()(const Order& ready) {
    // The latest, where there are many: those carry on what was begun.
    std::size_t best = last_of(ready);
    double least = kInfinity;
    if (clock_.is_late_after(0)) return best;
    const std::size_t first = ready.size() > kLook ? ready.size() - kLook : 0;
    for (std::size_t i = first; i < ready.size(); ++i) {
      const double change = crossing_change(ready[i]);
      clock_.is_late_after(1 + instance_.nets[ready[i]].size());
      if (change >= least) continue;
      least = change;
      best = i;
    }
    for (const NetId net : instance_.nets[ready[best]]) ++placed_[net];
    return best;
  }

 private:
  double crossing_change(UnitId unit) const {
    double change = 0;
    for (const NetId net : instance_.nets[unit]) {
      if (placed_[net] == 0) change += instance_.cost[net];
      if (placed_[net] + 1 == instance_.pins[net].size()) change -= instance_.cost[net];
    }
    return change;
  }

  const Instance& instance_;
  StepClock& clock_;
  std::vector<std::size_t> placed_;
};

// Of the ready units of the least stage the one with the greatest number.
Order greatest_first(const Instance& instance, const Stages& stages) {
  const auto key = [&](UnitId t) {
    return std::pair(stages.empty() ? 0 : stages[t], instance.num_units() - t);
  };
  return least_first_order<UnitId>(instance.num_units(), each_next_of(instance.successors), key);
}

Order as_numbered(const Instance& instance, const Stages& stages) {
  Order out = count_up<UnitId>(instance.num_units());
  if (!stages.empty()) std::ranges::stable_sort(out, {}, [&](UnitId t) { return stages[t]; });
  return out;
}

// Branches that are taken whole are what good cuts look like.
Order mostly_depth_first(const Instance& instance, const Stages& stages, Rng& rng) {
  return take(instance, stages, [&](const Order& ready) {
    if (rng.below(4) > 0) return last_of(ready);
    const std::size_t look = std::min(ready.size(), kLook);
    return ready.size() - look + static_cast<std::size_t>(rng.below(look));
  });
}

}  // namespace

Order make_order(const Instance& instance, const Stages& stages, OrderKind kind, Rng& rng,
                 StepClock& clock) {
  constexpr std::int64_t kStepsPerUnit = 25;
  count_steps(kStepsPerUnit * std::int64_t{instance.num_units()});
  switch (kind) {
    case OrderKind::depth_first: return take(instance, stages, last_of);
    case OrderKind::least_crossing: return take(instance, stages, LeastCrossing(instance, clock));
    case OrderKind::least_number: return as_numbered(instance, stages);
    case OrderKind::greatest_number: return greatest_first(instance, stages);
    case OrderKind::drawn: break;
  }
  return mostly_depth_first(instance, stages, rng);
}

}  // namespace kerf::place
