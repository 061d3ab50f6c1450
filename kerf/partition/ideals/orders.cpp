// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Splits a sequence into stages for k accelerators and the CPU: value[position][accelerators used]
// [CPU used] is the least largest load of the groups before the position. Optimal for the order.
#include "kerf/partition/ideals/orders.h"

#include <algorithm>
#include <ranges>

namespace kerf::partition::ideals {
namespace {

// Calls choose(ready) for the index of the next group among those whose predecessors are placed and
// that are of the least stage left.
template <class Choose>
Order take(const Groups& groups, const Stages& stages, Choose&& choose) {
  std::vector<std::size_t> missing(groups.size());
  Order ready;
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    missing[g] = groups.predecessors[g].size();
    if (missing[g] == 0) ready.push_back(g);
  }
  const auto stage = [&](std::uint32_t g) { return stages.empty() ? 0 : stages[g]; };
  Order out;
  Order waiting;  // ready, of later stages
  while (!ready.empty()) {
    const std::uint32_t least = stage(std::ranges::min(ready, {}, stage));
    const auto later =
        std::ranges::stable_partition(ready, [&](std::uint32_t g) { return stage(g) == least; });
    waiting.assign(later.begin(), later.end());
    ready.erase(later.begin(), later.end());
    const auto at = static_cast<std::ptrdiff_t>(choose(ready));
    const std::uint32_t g = ready[static_cast<std::size_t>(at)];
    ready.erase(ready.begin() + at);
    ready.insert(ready.begin(), waiting.begin(), waiting.end());
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

// Devices filled one after the other along an order, as far as a limit lets them.
class Fill {
 public:
  Fill(const Groups& groups, const Order& order) : groups_(groups), order_(order), nets_(groups) {}
  std::int64_t work = 0;

  Chain run(double limit) {
    Chain out{order_, {}, {}, 0};
    int accelerators = groups_.num_accelerators;
    bool has_cpu = groups_.has_cpu;
    std::uint32_t at = 0;
    while (at < order_.size()) {
      const std::uint32_t start = at;
      if (accelerators > 0) at = fill_accelerator(start, limit, out.load);
      const bool on_cpu = at == start;
      if (on_cpu && has_cpu) at = fill_cpu(start, limit, out.load);
      if (at == start) break;
      on_cpu ? has_cpu = false : --accelerators;
      out.ends.push_back(at);
      out.on_cpu.push_back(on_cpu);
      for (std::uint32_t i = start; i < at; ++i) nets_.add_before(order_[i]);
    }
    for (std::uint32_t i = 0; i < at; ++i) nets_.remove_before(order_[i]);
    if (at < order_.size()) out.load = kInfinity;
    return out;
  }

 private:
  std::uint32_t fill_accelerator(std::uint32_t start, double limit, double& largest) {
    Sums sums;
    double load = 0;
    std::uint32_t end = start;
    std::uint32_t best = start;
    while (end < order_.size() && groups_.groups[order_[end]].on_accelerator) {
      sums = nets_.add(order_[end++], sums);
      if (sums.least() >= limit || sums.bytes > groups_.memory) break;
      if (sums.load >= limit) continue;
      best = end;
      load = sums.load;
    }
    work += end - start;
    while (end > start) nets_.remove(order_[--end]);
    largest = std::max(largest, load);
    return best;
  }
  std::uint32_t fill_cpu(std::uint32_t start, double limit, double& largest) const {
    double load = 0;
    std::uint32_t end = start;
    while (end < order_.size() && load + groups_.groups[order_[end]].cpu_time < limit) {
      load += groups_.groups[order_[end++]].cpu_time;
    }
    largest = std::max(largest, load);
    return end;
  }

  const Groups& groups_;
  const Order& order_;
  StageNets nets_;
};

class OrderCut {
 public:
  OrderCut(const Groups& groups, const Order& order, double limit, Effort& effort)
      : groups_(groups),
        order_(order),
        limit_(limit),
        effort_(effort),
        nets_(groups),
        width_(static_cast<std::size_t>(groups.num_accelerators + 1) * 2),
        value_((order.size() + 1) * width_, kInfinity),
        from_(value_.size(), kNowhere) {}

  Chain run() {
    value_[0] = 0;
    for (std::uint32_t start = 0; start < order_.size(); ++start) {
      if (start % 64 == 63 && effort_.stop()) return {};
      if (is_reached(start)) {
        place_on_accelerator(start);
        if (groups_.has_cpu) place_on_cpu(start);
      }
      nets_.add_before(order_[start]);
    }
    return read_back();
  }

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
      if (sums.least() >= limit_ || sums.bytes > groups_.memory) break;
      if (sums.load < limit_) update(start, end, sums.load, 2);
    }
    effort_.work += end - start;
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
  Effort& effort_;
  StageNets nets_;
  std::size_t width_;
  std::vector<double> value_;
  std::vector<std::uint32_t> from_;
};

}  // namespace

std::vector<Order> good_orders(const Groups& groups, const Stages& stages, int num_random,
                               Rng& rng) {
  std::vector<Order> out;
  out.push_back(take(groups, stages, [](const Order& ready) { return ready.size() - 1; }));
  out.push_back(take(groups, stages, LeastCrossing(groups)));
  out.push_back(take(groups, stages, [](const Order& ready) {
    return static_cast<std::size_t>(std::ranges::min_element(ready) - ready.begin());
  }));
  out.push_back(take(groups, stages, [](const Order& ready) {
    return static_cast<std::size_t>(std::ranges::max_element(ready) - ready.begin());
  }));
  for (int i = 0; i < num_random; ++i) {
    out.push_back(take(groups, stages, [&](const Order& ready) {
      // Mostly depth first: branches that are taken whole are what good cuts look like.
      return rng.below(4) > 0 ? ready.size() - 1
                              : static_cast<std::size_t>(rng.below(ready.size()));
    }));
  }
  return out;
}

Stages stages_of(const Chain& chain) {
  Stages out(chain.order.size());
  std::uint32_t at = 0;
  for (std::uint32_t stage = 0; stage < chain.ends.size(); ++stage) {
    for (; at < chain.ends[stage]; ++at) out[chain.order[at]] = stage;
  }
  return out;
}

Chain fill_order(const Groups& groups, const Order& order, double above_all, Effort& effort) {
  Fill fill(groups, order);
  double fails = groups.total_accelerator_time() / (groups.num_accelerators + 1);
  double limit = std::max(fails * 1.05, above_all * 1e-6);
  Chain best = fill.run(limit);
  while (best.load == kInfinity && limit < above_all) {
    fails = limit;
    limit = std::min(limit * 1.4, above_all);
    best = fill.run(limit);
  }
  for (int step = 0; step < 12 && best.load < kInfinity && best.load > fails; ++step) {
    limit = (fails + best.load) / 2;
    Chain chain = fill.run(limit);
    if (chain.load < best.load)
      best = std::move(chain);
    else
      fails = limit;
  }
  effort.work += fill.work;
  return best;
}

Chain cut_order(const Groups& groups, const Order& order, double limit, Effort& effort) {
  return OrderCut(groups, order, limit, effort).run();
}

}  // namespace kerf::partition::ideals
