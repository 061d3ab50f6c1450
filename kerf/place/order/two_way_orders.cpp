// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/order/two_way_orders.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

#include "kerf/base/count_up.h"

namespace kerf::place {
namespace {

Waiting waiting_in(const Instance& instance, bool backwards) {
  return backwards ? Waiting(instance.predecessors, instance.successors)
                   : Waiting(instance.successors, instance.predecessors);
}

Order depth_first(const Instance& instance, bool backwards, Rng& rng) {
  Waiting waiting = waiting_in(instance, backwards);
  return take_in_turn(waiting, waiting.first_shuffled(rng), {}, last_of);
}

Order random_order(const Instance& instance, bool backwards, Rng& rng) {
  Waiting waiting = waiting_in(instance, backwards);
  return take_in_turn(waiting, waiting.first_shuffled(rng), {},
                      [&](const Order& ready) { return rng.below(ready.size()); });
}

// By vertex, the longest path to it; backwards: from it.
Stages find_heights(const Instance& instance, bool backwards) {
  const std::uint32_t n = instance.num_units();
  Stages height(n, 0);
  const auto raise = [&](UnitId v, const UnitRows& before) {
    for (const UnitId u : before[v]) height[v] = std::max(height[v], height[u] + 1);
  };
  if (backwards) {
    for (UnitId v{n}; v-- > 0;) raise(v, instance.successors);
  } else {
    for (UnitId v{0}; v < n; ++v) raise(v, instance.predecessors);
  }
  return height;
}

// Slices of equal height, each as numbered or depth first.
Order by_levels(const Instance& instance, bool backwards, Rng& rng) {
  Order out;
  if (rng.below(2) == 0) {
    out = depth_first(instance, backwards, rng);
  } else {
    out = count_up<UnitId>(instance.num_units());
    if (backwards) std::ranges::reverse(out);
  }
  const Stages height = find_heights(instance, backwards);
  std::ranges::stable_sort(out, {}, [&](UnitId v) { return height[v]; });
  return out;
}

// A net is open between its first and its last pin. Each step takes the ready vertex that opens
// least and closes most; of equals one that became cheaper lately, to stay in one place.
class LeastCut {
 public:
  LeastCut(const Instance& instance, bool backwards, Rng& rng)
      : instance_(instance),
        rng_(rng),
        waiting_(waiting_in(instance, backwards)),
        placed_(instance.num_nets(), 0),
        price_(instance.num_units(), 0),
        is_placed_(instance.num_units(), false),
        stamp_(instance.num_units(), 0) {
    for (UnitId v{0}; v < instance.num_units(); ++v) {
      for (const NetId net : instance.nets[v]) price_[v] += instance.cost[net];
    }
    for (const UnitId v : waiting_.first_shuffled(rng)) push(v);
  }
  Order run() {
    Order out;
    while (!ready_.empty()) {
      const Entry top = ready_.top();
      ready_.pop();
      if (is_placed_[top.vertex] || top.stamp != stamp_[top.vertex]) continue;
      out.push_back(top.vertex);
      place(top.vertex);
    }
    return out;
  }

 private:
  struct Entry {
    double price = 0;
    std::uint64_t age = 0;
    UnitId vertex;
    std::uint32_t stamp = 0;
    bool operator<(const Entry& other) const {
      if (price != other.price) return price > other.price;
      if (age != other.age) return age < other.age;
      return vertex > other.vertex;
    }
  };
  void push(UnitId v) { ready_.push({price_[v], clock_ * 4 + rng_.below(16), v, ++stamp_[v]}); }
  void cheapen(NetId net) {
    for (const UnitId pin : instance_.pins[net]) {
      if (is_placed_[pin]) continue;
      price_[pin] -= instance_.cost[net];
      if (waiting_.is_ready(pin)) push(pin);
    }
  }
  void place(UnitId v) {
    ++clock_;
    is_placed_[v] = true;
    for (const NetId net : instance_.nets[v]) {
      const std::uint32_t placed = ++placed_[net];
      // Opened: the others no longer do. One is left: it will close it.
      if (placed == 1) cheapen(net);
      if (placed + 1 == instance_.pins[net].size()) cheapen(net);
    }
    waiting_.place(v, [&](UnitId to) { push(to); });
  }

  const Instance& instance_;
  Rng& rng_;
  Waiting waiting_;
  std::vector<std::uint32_t> placed_;  // by net
  std::vector<double> price_;          // by vertex
  std::vector<bool> is_placed_;
  std::vector<std::uint32_t> stamp_;
  std::priority_queue<Entry> ready_;
  std::uint64_t clock_ = 0;
};

// By vertex: 0 in half 0 with all before it, 2 in half 1 with all after it, else 1. Never falls
// along an edge.
Stages find_sides(const Instance& instance, std::span<const SlotId> half) {
  const std::uint32_t n = instance.num_units();
  Stages out(n, 1);
  const auto all = [&](std::span<const UnitId> row, std::uint32_t side) {
    return std::ranges::all_of(row, [&](UnitId u) { return out[u] == side; });
  };
  for (UnitId v{0}; v < n; ++v) {
    if (half[v] == 0 && all(instance.predecessors[v], 0)) out[v] = 0;
  }
  for (UnitId v{n}; v-- > 0;) {
    if (half[v] == 1 && all(instance.successors[v], 2)) out[v] = 2;
  }
  return out;
}

}  // namespace

Order order_by_halves(const Instance& instance, std::span<const SlotId> half, bool backwards) {
  const Stages side = find_sides(instance, half);
  const Stages height = find_heights(instance, backwards);
  const std::uint32_t heights = height.empty() ? 0 : *std::ranges::max_element(height) + 1;
  const auto place_of = [&](UnitId v) {
    const std::uint32_t along = backwards ? heights - 1 - height[v] : height[v];
    return std::size_t{side[v]} * heights + along;
  };
  std::vector<std::uint32_t> next(std::size_t{3} * heights + 1, 0);
  for (UnitId v{0}; v < instance.num_units(); ++v) ++next[place_of(v) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  Order out(instance.num_units());
  for (UnitId v{0}; v < instance.num_units(); ++v) out[next[place_of(v)]++] = v;
  return out;
}

Order find_order(const Instance& instance, TwoWayOrder kind, bool backwards, Rng& rng) {
  Order out;
  switch (kind) {
    case TwoWayOrder::natural: out = count_up<UnitId>(instance.num_units()); return out;
    case TwoWayOrder::depth_first: out = depth_first(instance, backwards, rng); break;
    case TwoWayOrder::least_cut: out = LeastCut(instance, backwards, rng).run(); break;
    case TwoWayOrder::levels: out = by_levels(instance, backwards, rng); break;
    case TwoWayOrder::random: out = random_order(instance, backwards, rng); break;
  }
  if (backwards) std::ranges::reverse(out);
  return out;
}

}  // namespace kerf::place
