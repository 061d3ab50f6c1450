// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: a line of units is cut into intervals, each on a device of its own, so that the largest
// load (compute and tensors that the device pays for) is least. Dynamic programme over (end,
// accelerators used of each kind, CPU used), O(blocks^2 x states x kinds); optimal for the line,
// not for the problem.
#include "kerf/place/refine/order_starts.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "kerf/base/infinity.h"

namespace kerf::place {
namespace {

// Keeps what grow_order knows of tensors: how many of their units are placed.
class Frontier {
 public:
  explicit Frontier(const Instance& units)
      : units_(units), placed_(units.num_nets(), 0), state_(units.num_tasks(), kFar) {}

  bool placed(std::uint32_t unit) const { return state_[unit] == kPlaced; }
  std::span<const std::uint32_t> open() const { return open_; }

  void place(std::uint32_t unit) {
    if (state_[unit] == kOpen) {
      // From the end: that is where recent ones are, and they are looked at first.
      const auto at = std::find(open_.rbegin(), open_.rend(), unit);
      open_.erase(std::next(at).base());
    }
    state_[unit] = kPlaced;
    for (const std::uint32_t net : units_.nets[unit]) {
      if (placed_[net]++ > 0) continue;
      for (const std::uint32_t other : units_.pins[net]) {
        if (state_[other] != kFar) continue;
        state_[other] = kOpen;
        open_.push_back(other);
      }
    }
  }

  // What the open tensors cost more once `unit` is placed.
  double growth(std::uint32_t unit) const {
    double growth = 0;
    for (const std::uint32_t net : units_.nets[unit]) {
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
  std::vector<std::uint32_t> open_;
};

std::uint32_t next_open(const Frontier& frontier, double noise, Rng& rng) {
  std::uint32_t best = kNoIndex;
  double least = kInfinity;
  // Of a wide frontier only the latest, so that long orders take linear time.
  constexpr std::size_t kLooked = 128;
  const auto open = frontier.open();
  for (const std::uint32_t unit : open.last(std::min(open.size(), kLooked))) {
    const double growth = frontier.growth(unit);
    const double key = growth + (growth < 0 ? -growth : growth) * noise * rng.uniform();
    if (key >= least) continue;
    least = key;
    best = unit;
  }
  return best;
}

// Blocks of consecutive units with about equal times, at most kMaxBlocks: begin of each, and the
// end.
std::vector<std::size_t> blocks_of(const Instance& units, std::span<const std::uint32_t> order) {
  std::vector<std::size_t> begin;
  const std::size_t count = order.size();
  if (count <= kMaxBlocks) {
    begin.resize(count + 1);
    std::iota(begin.begin(), begin.end(), std::size_t{0});
    return begin;
  }
  // Every block is a place where intervals begin: fewer where intervals take long to look at.
  constexpr std::size_t kFewestBlocks = 80;
  constexpr std::size_t kMostSteps = 40'000'000;
  const std::size_t blocks =
      std::clamp(kMostSteps / (units.pins.num_values() + 1), kFewestBlocks, kMaxBlocks);
  double total = 0;
  for (const std::uint32_t u : order) total += units.accelerator_time[u];
  const double step = 2 * total / static_cast<double>(blocks);
  const std::size_t most = 2 * count / blocks;
  double held = kInfinity;
  for (std::size_t i = 0; i < count; ++i) {
    const double time = units.accelerator_time[order[i]];
    if (begin.empty() || held + time > step || i - begin.back() > most) {
      begin.push_back(i);
      held = 0;
    }
    held += time;
  }
  begin.push_back(count);
  return begin;
}

// Accelerators that a line may use in any order: equal ones, or ones taken for equal.
struct Kind {
  double slowness;
  double memory;
  std::vector<std::uint32_t> devices;
};

std::size_t num_states(const std::vector<Kind>& kinds) {
  std::size_t states = 2;  // CPU used or not
  for (const Kind& kind : kinds) states *= kind.devices.size() + 1;
  return states;
}

// Two neighbours by speed become one kind, as slow and small as the worse.
void join_most_alike(std::vector<Kind>& kinds) {
  std::size_t best = 1;
  double least = kInfinity;
  for (std::size_t i = 1; i < kinds.size(); ++i) {
    const double apart = kinds[i].slowness - kinds[i - 1].slowness;
    const auto size = static_cast<double>(kinds[i].devices.size() + kinds[i - 1].devices.size());
    const double key = (apart / std::max(kinds[i].slowness, 1e-300) + 0.01) * size;
    if (key >= least) continue;
    least = key;
    best = i;
  }
  Kind& into = kinds[best - 1];
  const Kind& from = kinds[best];
  into.slowness = std::max(into.slowness, from.slowness);
  into.memory = std::min(into.memory, from.memory);
  into.devices.insert(into.devices.end(), from.devices.begin(), from.devices.end());
  kinds.erase(kinds.begin() + static_cast<std::ptrdiff_t>(best));
}

std::vector<Kind> kinds_of(const Instance& units) {
  std::vector<std::uint32_t> order(units.cpu);
  std::iota(order.begin(), order.end(), 0U);
  const auto figures = [&](std::uint32_t d) {
    return std::pair(units.slowness[d], units.memory[d]);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return figures(a) < figures(b); });
  std::vector<Kind> kinds;
  for (const std::uint32_t d : order) {
    const auto [slowness, memory] = figures(d);
    if (kinds.empty() || std::pair(kinds.back().slowness, kinds.back().memory) != figures(d)) {
      kinds.push_back({slowness, memory, {}});
    }
    kinds.back().devices.push_back(d);
  }
  while (kinds.size() > 1 && num_states(kinds) > kMaxStates) join_most_alike(kinds);
  return kinds;
}

class LineCutter {
 public:
  LineCutter(const Instance& units, std::span<const std::uint32_t> order, double limit)
      : units_(units),
        link_(units.charging == Charging::link),
        order_(order),
        limit_(limit),
        kinds_(kinds_of(units)),
        begin_(blocks_of(units, order)),
        blocks_(begin_.size() - 1),
        states_(num_states(kinds_)),
        best_((blocks_ + 1) * states_),
        placed_(units.num_nets(), 0) {
    std::size_t stride = 2;
    for (const Kind& kind : kinds_) {
      strides_.push_back(stride);
      stride *= kind.devices.size() + 1;
    }
  }

  std::optional<std::vector<std::uint32_t>> cut(const StopClock& clock) {
    best_[0].load = 0;
    for (std::size_t i = 0; i < blocks_; ++i) {
      if (clock.struck()) return std::nullopt;
      extend_from(i);
    }
    const Step* last = &best_[blocks_ * states_];
    const Step* end = std::min_element(
        last, last + states_, [](const Step& a, const Step& b) { return a.load < b.load; });
    if (end->load == kInfinity) return std::nullopt;
    return walk_back(static_cast<std::size_t>(end - last));
  }

 private:
  // State: CPU used, and for each kind the accelerators used times its stride.
  struct Step {
    double load = kInfinity;
    std::uint32_t from_block = 0;
    std::uint32_t from_state = 0;
  };
  // Of the units between two places of the line.
  struct Interval {
    double compute = 0;  // on an accelerator of slowness 1
    double cpu_compute = 0;
    double tensors = 0;
    double bytes = 0;
    bool runs = true;  // on an accelerator
    bool runs_on_cpu = true;
  };

  std::size_t used(std::size_t state, std::size_t kind) const {
    return state / strides_[kind] % (kinds_[kind].devices.size() + 1);
  }

  void offer(std::size_t to, std::size_t state, std::size_t from, std::size_t from_state,
             double load) {
    Step& step = best_[to * states_ + state];
    if (load >= step.load) return;
    step = {load, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(from_state)};
  }

  // All intervals that begin at block i, their load kept up as they grow.
  void extend_from(std::size_t i) {
    Interval interval;
    std::size_t end = i;
    while (end < blocks_) {
      for (std::size_t at = begin_[end]; at < begin_[end + 1]; ++at) add(interval, order_[at]);
      ++end;
      if (!may_grow(interval)) break;
      for (std::size_t k = 0; k < kinds_.size(); ++k) offer_kind(i, end, k, interval);
      if (units_.has_cpu()) offer_cpu(i, end, interval);
    }
    for (std::size_t at = begin_[i]; at < begin_[end]; ++at) {
      for (const std::uint32_t net : units_.nets[order_[at]]) placed_[net] = 0;
    }
  }

  void add(Interval& interval, std::uint32_t unit) {
    interval.compute += units_.accelerator_time[unit];
    interval.cpu_compute += units_.cpu_time[unit];
    interval.tensors += tensors_of(unit);
    interval.bytes += units_.bytes[unit];
    interval.runs = interval.runs && units_.on_accelerator[unit] != 0;
    interval.runs_on_cpu = interval.runs_on_cpu && units_.on_cpu[unit] != 0;
  }

  // Whether it, or a longer one, may be on some device below the limit.
  bool may_grow(const Interval& interval) const {
    if (units_.has_cpu() && interval.runs_on_cpu && interval.cpu_compute < limit_ &&
        interval.bytes <= units_.memory[units_.cpu]) {
      return true;
    }
    return interval.runs && std::any_of(kinds_.begin(), kinds_.end(), [&](const Kind& kind) {
             return interval.bytes <= kind.memory && interval.compute * kind.slowness < limit_;
           });
  }

  void offer_kind(std::size_t from, std::size_t to, std::size_t kind, const Interval& interval) {
    if (!interval.runs || interval.bytes > kinds_[kind].memory) return;
    const double load = interval.compute * kinds_[kind].slowness + interval.tensors;
    for (std::size_t s = 0; s < states_; ++s) {
      const double before = best_[from * states_ + s].load;
      if (before == kInfinity || used(s, kind) == kinds_[kind].devices.size()) continue;
      offer(to, s + strides_[kind], from, s, std::max(before, load));
    }
  }

  void offer_cpu(std::size_t from, std::size_t to, const Interval& interval) {
    if (!interval.runs_on_cpu || interval.bytes > units_.memory[units_.cpu]) return;
    const double load = interval.cpu_compute + (link_ ? interval.tensors : 0);
    for (std::size_t s = 0; s < states_; s += 2) {
      const double before = best_[from * states_ + s].load;
      if (before != kInfinity) offer(to, s + 1, from, s, std::max(before, load));
    }
  }

  // What the interval's tensors cost more with `unit` in it; see SplitState.
  double tensors_of(std::uint32_t unit) {
    double change = 0;
    const auto nets = units_.nets[unit];
    for (std::size_t i = 0; i < nets.size(); ++i) {
      const std::uint32_t net = nets[i];
      const std::uint32_t before = placed_[net]++;
      if (!link_) {
        if (before == 0) change += units_.cost[net];
        if (before + 1 == units_.pins.length(net)) change -= units_.cost[net];
      } else if (units_.makes(unit, i)) {
        if (before > 0) change -= units_.cost[net];
      } else if (before == 0) {
        change += units_.cost[net];
      }
    }
    return change;
  }

  std::vector<std::uint32_t> walk_back(std::size_t state) const {
    std::vector<std::uint32_t> device(order_.size(), 0);
    for (std::size_t block = blocks_; block > 0;) {
      const Step& step = best_[block * states_ + state];
      const std::uint32_t to = device_between(step.from_state, state);
      for (std::size_t at = begin_[step.from_block]; at < begin_[block]; ++at) {
        device[order_[at]] = to;
      }
      block = step.from_block;
      state = step.from_state;
    }
    return device;
  }

  std::uint32_t device_between(std::size_t before, std::size_t after) const {
    if (before % 2 != after % 2) return units_.cpu;
    std::size_t kind = 0;
    while (strides_[kind] != after - before) ++kind;
    return kinds_[kind].devices[used(before, kind)];
  }

  const Instance& units_;
  bool link_;
  std::span<const std::uint32_t> order_;
  double limit_;
  std::vector<Kind> kinds_;
  std::vector<std::size_t> strides_;  // by kind
  std::vector<std::size_t> begin_;
  std::size_t blocks_;
  std::size_t states_;
  std::vector<Step> best_;
  std::vector<std::uint32_t> placed_;  // by net
};

}  // namespace

std::vector<std::uint32_t> grow_order(const Instance& units, std::uint32_t first, double noise,
                                      const StopClock& clock, Rng& rng) {
  constexpr std::size_t kUnitsBetweenLooks = 256;
  Frontier frontier(units);
  std::vector<std::uint32_t> order;
  std::uint32_t unplaced = 0;
  for (std::uint32_t next = first; next != kNoIndex;) {
    frontier.place(next);
    order.push_back(next);
    if (order.size() % kUnitsBetweenLooks == 0 && clock.struck()) break;
    next = next_open(frontier, noise, rng);
    if (next != kNoIndex) continue;
    // Nothing hangs on what is placed: go on with another component.
    while (unplaced < units.num_tasks() && frontier.placed(unplaced)) ++unplaced;
    if (unplaced < units.num_tasks()) next = unplaced;
  }
  for (std::uint32_t u = 0; order.size() < units.num_tasks(); ++u) {
    if (!frontier.placed(u)) order.push_back(u);
  }
  return order;
}

std::vector<std::uint32_t> reach_order(const Instance& units, Rng& rng) {
  std::vector<std::vector<std::uint32_t>> readers(units.num_tasks());
  for (std::uint32_t net = 0; net < units.num_nets(); ++net) {
    for (const std::uint32_t u : units.pins[net]) {
      if (u != units.source[net]) readers[units.source[net]].push_back(u);
    }
  }
  for (auto& list : readers) {
    for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[rng.below(i)]);
  }
  std::vector<std::uint32_t> order;
  std::vector<bool> seen(units.num_tasks(), false);
  std::vector<std::pair<std::uint32_t, std::size_t>> stack;
  for (std::uint32_t root = 0; root < units.num_tasks(); ++root) {
    if (!seen[root]) stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [unit, next] = stack.back();
      seen[unit] = true;
      if (next == readers[unit].size()) {
        order.push_back(unit);
        stack.pop_back();
        continue;
      }
      const std::uint32_t reader = readers[unit][next++];
      if (!seen[reader]) stack.emplace_back(reader, 0);
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

std::uint32_t far_unit(const Instance& units, std::uint32_t from) {
  std::vector<bool> seen(units.num_tasks(), false);
  std::vector<bool> crossed(units.num_nets(), false);
  std::vector<std::uint32_t> queue{from};
  seen[from] = true;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const std::uint32_t net : units.nets[queue[i]]) {
      if (crossed[net]) continue;
      crossed[net] = true;
      for (const std::uint32_t other : units.pins[net]) {
        if (seen[other]) continue;
        seen[other] = true;
        queue.push_back(other);
      }
    }
  }
  return queue.back();
}

std::optional<std::vector<std::uint32_t>> cut_order(const Instance& units,
                                                    std::span<const std::uint32_t> order,
                                                    double limit, const StopClock& clock) {
  return LineCutter(units, order, limit).cut(clock);
}

}  // namespace kerf::place
