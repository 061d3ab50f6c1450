// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Splits a sequence into stages for k accelerators and the CPU: value[position][accelerators used]
// [CPU used] is the least largest load of the groups before the position. Optimal for the order.
#include "kerf/partition/ideals/orders.h"

#include <algorithm>

namespace kerf::partition::ideals {
namespace {

// Calls choose(ready) for the index of the next group among those whose predecessors are placed.
template <class Choose>
Order take(const Groups& groups, Choose&& choose) {
  std::vector<std::size_t> missing(groups.size());
  Order ready;
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    missing[g] = groups.predecessors[g].size();
    if (missing[g] == 0) ready.push_back(g);
  }
  Order out;
  while (!ready.empty()) {
    const auto at = static_cast<std::ptrdiff_t>(choose(ready));
    const std::uint32_t g = ready[static_cast<std::size_t>(at)];
    ready.erase(ready.begin() + at);
    out.push_back(g);
    for (const std::uint32_t next : groups.successors[g]) {
      if (--missing[next] == 0) ready.push_back(next);
    }
  }
  return out;
}

// Next is the group after which the nets that cross from before to after cost least.
class LeastCrossing {
 public:
  explicit LeastCrossing(const Groups& groups) : groups_(groups), placed_(groups.num_nets(), 0) {}
  std::size_t operator()(const Order& ready) {
    std::size_t best = 0;
    double least = kInfinity;
    for (std::size_t i = 0; i < ready.size(); ++i) {
      const double change = crossing_change(ready[i]);
      if (change >= least) continue;
      least = change;
      best = i;
    }
    for (const std::uint32_t net : groups_.nets[ready[best]]) ++placed_[net];
    return best;
  }

 private:
  double crossing_change(std::uint32_t group) const {
    double change = 0;
    for (const std::uint32_t net : groups_.nets[group]) {
      if (placed_[net] == 0) change += groups_.cost[net];
      if (placed_[net] + 1 == groups_.pins[net].size()) change -= groups_.cost[net];
    }
    return change;
  }

  const Groups& groups_;
  std::vector<std::size_t> placed_;
};

class OrderCut {
 public:
  OrderCut(const Groups& groups, const Order& order, double limit)
      : groups_(groups),
        order_(order),
        limit_(limit),
        nets_(groups),
        width_(static_cast<std::size_t>(groups.num_accelerators + 1) * 2),
        value_((order.size() + 1) * width_, kInfinity),
        from_(value_.size(), kNowhere) {}

  Chain run() {
    value_[0] = 0;
    for (std::uint32_t start = 0; start < order_.size(); ++start) {
      if (is_reached(start)) {
        place_on_accelerator(start);
        if (groups_.has_cpu) place_on_cpu(start);
      }
      nets_.add_before(order_[start]);
    }
    return read_back();
  }
  std::int64_t work = 0;

 private:
  // From which position, by which kind of device.
  static constexpr std::uint32_t kNowhere = ~0U;
  double* row(std::size_t position) { return value_.data() + position * width_; }
  std::uint32_t* from(std::size_t position) { return from_.data() + position * width_; }

  bool is_reached(std::uint32_t position) {
    return std::any_of(row(position), row(position) + width_, [&](double v) { return v < limit_; });
  }
  void place_on_accelerator(std::uint32_t start) {
    Sums sums;
    std::uint32_t end = start;
    while (end < order_.size() && groups_.groups[order_[end]].on_accelerator) {
      sums = nets_.add(order_[end++], sums);
      if (sums.least >= limit_ || sums.bytes > groups_.memory) break;
      if (sums.load < limit_) update(start, end, sums.load, 2);
    }
    work += end - start;
    while (end > start) nets_.remove(order_[--end]);
  }
  void place_on_cpu(std::uint32_t start) {
    double load = 0;
    for (std::uint32_t end = start; end < order_.size(); ++end) {
      load += groups_.groups[order_[end]].cpu_time;
      if (load >= limit_) break;
      update(start, end + 1, load, 1);
    }
  }
  // States are 2 * accelerators used + CPU used; `step` leads to the state after the stage.
  void update(std::uint32_t start, std::uint32_t end, double load, std::size_t step) {
    const double* values = row(start);
    double* next = row(end);
    for (std::size_t s = 0; s + step < width_; ++s) {
      if (step == 1 && s % 2 == 1) continue;
      const double value = std::max(values[s], load);
      if (value >= next[s + step]) continue;
      next[s + step] = value;
      from(end)[s + step] = start * 2 + static_cast<std::uint32_t>(step - 1);
    }
  }
  Chain read_back() {
    Chain out{order_, {}, {}, kInfinity};
    auto position = static_cast<std::uint32_t>(order_.size());
    const double* best = std::min_element(row(position), row(position) + width_);
    if (!(*best < limit_)) return out;
    out.load = *best;
    auto state = static_cast<std::size_t>(best - row(position));
    while (position > 0) {
      const std::uint32_t origin = from(position)[state];
      out.ends.insert(out.ends.begin(), position);
      out.on_cpu.insert(out.on_cpu.begin(), origin % 2 == 0);
      state -= 1 + origin % 2;
      position = origin / 2;
    }
    return out;
  }

  const Groups& groups_;
  const Order& order_;
  double limit_;
  StageNets nets_;
  std::size_t width_;
  std::vector<double> value_;
  std::vector<std::uint32_t> from_;
};

}  // namespace

std::vector<Order> good_orders(const Groups& groups, int num_random, Rng& rng) {
  std::vector<Order> out;
  out.push_back(take(groups, [](const Order& ready) { return ready.size() - 1; }));
  out.push_back(take(groups, LeastCrossing(groups)));
  out.push_back(take(groups, [](const Order& ready) {
    return static_cast<std::size_t>(std::ranges::min_element(ready) - ready.begin());
  }));
  out.push_back(take(groups, [](const Order& ready) {
    return static_cast<std::size_t>(std::ranges::max_element(ready) - ready.begin());
  }));
  for (int i = 0; i < num_random; ++i) {
    out.push_back(take(groups, [&](const Order& ready) {
      // Mostly depth first: branches that are taken whole are what good cuts look like.
      return rng.below(4) > 0 ? ready.size() - 1 : static_cast<std::size_t>(rng.below(ready.size()));
    }));
  }
  return out;
}

Chain cut_order(const Groups& groups, const Order& order, double limit, std::int64_t& work) {
  OrderCut cut(groups, order, limit);
  Chain out = cut.run();
  work += cut.work;
  return out;
}

}  // namespace kerf::partition::ideals
