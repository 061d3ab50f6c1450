// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: a line of units is cut into runs, each on a device. Dynamic programme over (end,
// accelerators used of each class, CPU used), O(blocks^2 x states x classes); optimal for the line,
// not for the problem.
#include "kerf/place/cut/cut_order.h"

#include <algorithm>
#include <utility>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/place/cut/device_classes.h"

namespace kerf::place {
namespace {

// Blocks of consecutive units with about equal times: begin of each, and the end.
std::vector<std::size_t> blocks_of(const Instance& units, std::span<const UnitId> order,
                                   std::size_t longest) {
  std::vector<std::size_t> begin;
  const std::size_t count = order.size();
  if (count <= longest) {
    begin = count_up<std::size_t>(count + 1);
    return begin;
  }
  // Every block is a place where intervals begin: fewer where intervals take long to look at.
  constexpr std::size_t kFewestBlocks = 80;
  constexpr std::size_t kMostSteps = 40'000'000;
  const std::size_t blocks =
      std::clamp(kMostSteps / (units.pins.num_values() + 1), kFewestBlocks, kMaxBlocks);
  double total = 0;
  for (const UnitId u : order) total += units.accelerator_time[u];
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

std::size_t num_states(const std::vector<DeviceClass>& classes) {
  std::size_t states = 2;  // CPU used or not
  for (const DeviceClass& its : classes) states *= its.devices.size() + 1;
  return states;
}

// Two neighbours by speed become one class, as slow and small as the worse.
void join_most_alike(std::vector<DeviceClass>& classes) {
  std::size_t best = 1;
  double least = kInfinity;
  for (std::size_t i = 1; i < classes.size(); ++i) {
    const double apart = classes[i].slowness - classes[i - 1].slowness;
    const auto size = static_cast<double>(classes[i].count() + classes[i - 1].count());
    const double key = (apart / std::max(classes[i].slowness, 1e-300) + 0.01) * size;
    if (key >= least) continue;
    least = key;
    best = i;
  }
  DeviceClass& into = classes[best - 1];
  const DeviceClass& from = classes[best];
  into.slowness = std::max(into.slowness, from.slowness);
  into.memory = std::min(into.memory, from.memory);
  into.devices.insert(into.devices.end(), from.devices.begin(), from.devices.end());
  classes.erase(classes.begin() + static_cast<std::ptrdiff_t>(best));
}

// Of accelerators, no more than the states allow.
std::vector<DeviceClass> accelerators_of(const Instance& units) {
  std::vector<DeviceClass> classes = find_classes(units);
  if (units.has_cpu()) classes.pop_back();
  while (classes.size() > 1 && num_states(classes) > kMaxStates) join_most_alike(classes);
  return classes;
}

class LineCutter {
 public:
  LineCutter(const Instance& units, std::span<const UnitId> order, double limit, CutAim aim)
      : units_(units),
        link_(units.charging == Charging::link),
        order_(order),
        limit_(limit),
        sums_up_(aim == CutAim::least_sum),
        kinds_(accelerators_of(units)),
        begin_(blocks_of(units, order, sums_up_ ? order.size() : kMaxBlocks)),
        blocks_(begin_.size() - 1),
        states_(num_states(kinds_)),
        best_((blocks_ + 1) * states_),
        placed_(units.num_nets(), 0) {
    std::size_t stride = 2;
    for (const DeviceClass& kind : kinds_) {
      strides_.push_back(stride);
      stride *= kind.devices.size() + 1;
    }
  }

  std::optional<Split> cut(const StopClock& clock) {
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
  // State: CPU used, and for each class of accelerators those used times its stride.
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

  double with(double before, double load) const {
    return sums_up_ ? before + load : std::max(before, load);
  }

  // All intervals that begin at block i, their load kept up as they grow.
  void extend_from(std::size_t i) {
    Interval interval;
    std::size_t end = i;
    if (sums_up_) extend_on_cpu(i);
    while (end < blocks_) {
      for (std::size_t at = begin_[end]; at < begin_[end + 1]; ++at) add(interval, order_[at]);
      ++end;
      if (!may_grow(interval)) break;
      for (std::size_t k = 0; k < kinds_.size(); ++k) offer_kind(i, end, k, interval);
      if (units_.has_cpu() && !sums_up_) offer_cpu(i, end, interval);
    }
    // For least_max its callers count.
    if (sums_up_) count_steps(static_cast<std::int64_t>((end - i) * (1 + states_ / 16)));
    for (std::size_t at = begin_[i]; at < begin_[end]; ++at) {
      for (const NetId net : units_.nets[order_[at]]) placed_[net] = 0;
    }
  }

  void add(Interval& interval, UnitId unit) {
    interval.compute += units_.accelerator_time[unit];
    interval.cpu_compute += units_.cpu_time[unit];
    interval.tensors += tensors_of(unit);
    interval.bytes += units_.bytes[unit];
    interval.runs = interval.runs && units_.on_accelerator[unit] != 0;
    interval.runs_on_cpu = interval.runs_on_cpu && units_.on_cpu[unit] != 0;
  }

  // Whether it, or a longer one, may be on some device below the limit.
  bool may_grow(const Interval& interval) const {
    if (!sums_up_ && units_.has_cpu() && interval.runs_on_cpu && interval.cpu_compute < limit_ &&
        interval.bytes <= units_.memory[units_.cpu]) {
      return true;
    }
    return interval.runs && std::any_of(kinds_.begin(), kinds_.end(), [&](const DeviceClass& kind) {
             return interval.bytes <= kind.memory && interval.compute * kind.slowness < limit_;
           });
  }

  void offer_kind(std::size_t from, std::size_t to, std::size_t kind, const Interval& interval) {
    if (!interval.runs || interval.bytes > kinds_[kind].memory) return;
    const double load = interval.compute * kinds_[kind].slowness + interval.tensors;
    for (std::size_t s = 0; s < states_; ++s) {
      const double before = best_[from * states_ + s].load;
      if (before == kInfinity || used(s, kind) == kinds_[kind].devices.size()) continue;
      offer(to, s + strides_[kind], from, s, with(before, load));
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

  // The CPU takes as many intervals as it likes: block by block.
  void extend_on_cpu(std::size_t i) {
    Interval block;
    for (std::size_t at = begin_[i]; at < begin_[i + 1]; ++at) {
      block.cpu_compute += units_.cpu_time[order_[at]];
      block.runs_on_cpu = block.runs_on_cpu && units_.on_cpu[order_[at]] != 0;
    }
    if (!units_.has_cpu() || !block.runs_on_cpu) return;
    for (std::size_t s = 0; s < states_; ++s) {
      offer(i + 1, s, i, s, best_[i * states_ + s].load + block.cpu_compute);
    }
  }

  // What the interval's tensors cost more with `unit` in it; see SplitState.
  double tensors_of(UnitId unit) {
    double change = 0;
    const auto nets = units_.nets[unit];
    for (std::size_t i = 0; i < nets.size(); ++i) {
      const NetId net = nets[i];
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

  Split walk_back(std::size_t state) const {
    std::vector<SlotId> device(order_.size(), SlotId{0});
    for (std::size_t block = blocks_; block > 0;) {
      const Step& step = best_[block * states_ + state];
      const SlotId to = device_between(step.from_state, state);
      for (std::size_t at = begin_[step.from_block]; at < begin_[block]; ++at) {
        device[order_[at]] = to;
      }
      block = step.from_block;
      state = step.from_state;
    }
    return device;
  }

  SlotId device_between(std::size_t before, std::size_t after) const {
    if (before % 2 != after % 2 || before == after) return units_.cpu;
    std::size_t kind = 0;
    while (strides_[kind] != after - before) ++kind;
    return kinds_[kind].devices[used(before, kind)];
  }

  const Instance& units_;
  bool link_;
  std::span<const UnitId> order_;
  double limit_;
  bool sums_up_;
  std::vector<DeviceClass> kinds_;    // of accelerators
  std::vector<std::size_t> strides_;  // by kind
  std::vector<std::size_t> begin_;
  std::size_t blocks_;
  std::size_t states_;
  std::vector<Step> best_;
  std::vector<std::uint32_t> placed_;  // by net
};

}  // namespace

std::optional<Split> cut_order(const Instance& units, std::span<const UnitId> order, double limit,
                               const StopClock& clock, CutAim aim) {
  return LineCutter(units, order, limit, aim).cut(clock);
}

}  // namespace kerf::place
