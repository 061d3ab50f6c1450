// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/acyclic/orders.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>
#include <vector>

namespace kerf::place::acyclic {
namespace {

// Kahn's algorithm; a subclass of the ready set says who is next.
class Growth {
 public:
  Growth(const Level& level, bool backwards)
      : next_(backwards ? level.predecessors : level.successors), missing_(level.size()) {
    const Rows& before = backwards ? level.successors : level.predecessors;
    for (std::uint32_t v = 0; v < level.size(); ++v) {
      missing_[v] = static_cast<std::uint32_t>(before[v].size());
    }
  }
  bool is_ready(std::uint32_t v) const { return missing_[v] == 0; }
  // Calls ready(vertex) for those that wait for v alone.
  void place(std::uint32_t v, const auto& ready) {
    for (const std::uint32_t to : next_[v]) {
      if (--missing_[to] == 0) ready(to);
    }
  }

 private:
  const Rows& next_;
  Numbers missing_;
};

Numbers first_ready(const Level& level, const Growth& growth, Rng& rng) {
  Numbers out;
  for (std::uint32_t v = 0; v < level.size(); ++v) {
    if (growth.is_ready(v)) out.push_back(v);
  }
  for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[rng.below(i)]);
  return out;
}

Numbers depth_first(const Level& level, bool backwards, Rng& rng) {
  Growth growth(level, backwards);
  Numbers stack = first_ready(level, growth, rng);
  Numbers out;
  while (!stack.empty()) {
    const std::uint32_t v = stack.back();
    stack.pop_back();
    out.push_back(v);
    growth.place(v, [&](std::uint32_t to) { stack.push_back(to); });
  }
  return out;
}

Numbers random_order(const Level& level, bool backwards, Rng& rng) {
  Growth growth(level, backwards);
  Numbers ready = first_ready(level, growth, rng);
  Numbers out;
  while (!ready.empty()) {
    std::swap(ready[rng.below(ready.size())], ready.back());
    const std::uint32_t v = ready.back();
    ready.pop_back();
    out.push_back(v);
    growth.place(v, [&](std::uint32_t to) { ready.push_back(to); });
  }
  return out;
}

// By vertex, the longest path to it; backwards: from it.
Numbers find_heights(const Level& level, bool backwards) {
  const std::uint32_t n = level.size();
  Numbers height(n, 0);
  const auto raise = [&](std::uint32_t v, const Rows& before) {
    for (const std::uint32_t u : before[v]) height[v] = std::max(height[v], height[u] + 1);
  };
  if (backwards) {
    for (std::uint32_t v = n; v-- > 0;) raise(v, level.successors);
  } else {
    for (std::uint32_t v = 0; v < n; ++v) raise(v, level.predecessors);
  }
  return height;
}

// Slices of equal height, each as numbered or depth first.
Numbers by_levels(const Level& level, bool backwards, Rng& rng) {
  Numbers out;
  if (rng.below(2) == 0) {
    out = depth_first(level, backwards, rng);
  } else {
    out.resize(level.size());
    std::iota(out.begin(), out.end(), 0U);
    if (backwards) std::ranges::reverse(out);
  }
  const Numbers height = find_heights(level, backwards);
  std::ranges::stable_sort(out, {}, [&](std::uint32_t v) { return height[v]; });
  return out;
}

// A net is open between its first and its last pin. Each step takes the ready vertex that opens
// least and closes most; of equals one that became cheaper lately, to stay in one place.
class LeastCut {
 public:
  LeastCut(const Level& level, bool backwards, Rng& rng)
      : level_(level),
        rng_(rng),
        growth_(level, backwards),
        placed_(level.num_nets(), 0),
        price_(level.size(), 0),
        is_placed_(level.size(), false),
        stamp_(level.size(), 0) {
    for (std::uint32_t v = 0; v < level.size(); ++v) {
      for (const std::uint32_t net : level.nets[v]) price_[v] += level.cost[net];
    }
    for (const std::uint32_t v : first_ready(level, growth_, rng)) push(v);
  }
  Numbers run() {
    Numbers out;
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
    std::uint32_t vertex = 0;
    std::uint32_t stamp = 0;
    bool operator<(const Entry& other) const {
      if (price != other.price) return price > other.price;
      if (age != other.age) return age < other.age;
      return vertex > other.vertex;
    }
  };
  void push(std::uint32_t v) {
    ready_.push({price_[v], clock_ * 4 + rng_.below(16), v, ++stamp_[v]});
  }
  void cheapen(std::uint32_t net) {
    for (const std::uint32_t pin : level_.pins[net]) {
      if (is_placed_[pin]) continue;
      price_[pin] -= level_.cost[net];
      if (growth_.is_ready(pin)) push(pin);
    }
  }
  void place(std::uint32_t v) {
    ++clock_;
    is_placed_[v] = true;
    for (const std::uint32_t net : level_.nets[v]) {
      const std::uint32_t placed = ++placed_[net];
      // Opened: the others no longer do. One is left: it will close it.
      if (placed == 1) cheapen(net);
      if (placed + 1 == level_.pins[net].size()) cheapen(net);
    }
    growth_.place(v, [&](std::uint32_t to) { push(to); });
  }

  const Level& level_;
  Rng& rng_;
  Growth growth_;
  Numbers placed_;             // by net
  std::vector<double> price_;  // by vertex
  std::vector<bool> is_placed_;
  Numbers stamp_;
  std::priority_queue<Entry> ready_;
  std::uint64_t clock_ = 0;
};

// By vertex: 0 in half 0 with all before it, 2 in half 1 with all after it, else 1. Never falls
// along an edge.
Numbers find_sides(const Level& level, std::span<const std::uint32_t> half) {
  const std::uint32_t n = level.size();
  Numbers out(n, 1);
  const auto all = [&](std::span<const std::uint32_t> row, std::uint32_t side) {
    return std::ranges::all_of(row, [&](std::uint32_t u) { return out[u] == side; });
  };
  for (std::uint32_t v = 0; v < n; ++v) {
    if (half[v] == 0 && all(level.predecessors[v], 0)) out[v] = 0;
  }
  for (std::uint32_t v = n; v-- > 0;) {
    if (half[v] == 1 && all(level.successors[v], 2)) out[v] = 2;
  }
  return out;
}

}  // namespace

Numbers order_by_halves(const Level& level, std::span<const std::uint32_t> half, bool backwards) {
  const Numbers side = find_sides(level, half);
  const Numbers height = find_heights(level, backwards);
  const std::uint32_t heights = height.empty() ? 0 : *std::ranges::max_element(height) + 1;
  const auto place_of = [&](std::uint32_t v) {
    const std::uint32_t along = backwards ? heights - 1 - height[v] : height[v];
    return std::size_t{side[v]} * heights + along;
  };
  std::vector<std::uint32_t> next(std::size_t{3} * heights + 1, 0);
  for (std::uint32_t v = 0; v < level.size(); ++v) ++next[place_of(v) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  Numbers out(level.size());
  for (std::uint32_t v = 0; v < level.size(); ++v) out[next[place_of(v)]++] = v;
  return out;
}

Numbers find_order(const Level& level, OrderKind kind, bool backwards, Rng& rng) {
  Numbers out;
  switch (kind) {
    case OrderKind::natural:
      out.resize(level.size());
      std::iota(out.begin(), out.end(), 0U);
      return out;
    case OrderKind::depth_first: out = depth_first(level, backwards, rng); break;
    case OrderKind::least_cut: out = LeastCut(level, backwards, rng).run(); break;
    case OrderKind::levels: out = by_levels(level, backwards, rng); break;
    case OrderKind::random: out = random_order(level, backwards, rng); break;
  }
  if (backwards) std::ranges::reverse(out);
  return out;
}

}  // namespace kerf::place::acyclic
