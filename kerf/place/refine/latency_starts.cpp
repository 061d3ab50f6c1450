// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/refine/latency_starts.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kerf/base/infinity.h"
#include "kerf/place/refine/memory_fill.h"
#include "kerf/place/refine/order_starts.h"

namespace kerf::place {
namespace {

using Split = std::vector<std::uint32_t>;

// The published greedy baseline: the next accelerator once one is full, the rest on the CPU.
Split fill_in_order(const Instance& units, std::span<const std::uint32_t> order) {
  Split device(units.num_tasks(), units.cpu);
  const double memory = units.memory.front();  // of each accelerator
  std::uint32_t current = 0;
  double bytes = 0;
  for (const std::uint32_t u : order) {
    if (units.on_accelerator[u] == 0 || units.bytes[u] > memory) continue;
    if (current < units.cpu && bytes + units.bytes[u] > memory) {
      ++current;
      bytes = 0;
    }
    if (current == units.cpu) break;
    device[u] = current;
    bytes += units.bytes[u];
  }
  return device;
}

// Cuts a line into intervals on accelerators with CPU units between them, so that the times of all,
// one after the other, add up to the least: the latency when nothing runs side by side. Dynamic
// programme over (end, accelerators used), O(units^2 x accelerators).
class SumCutter {
 public:
  SumCutter(const Instance& units, std::span<const std::uint32_t> order)
      : units_(units),
        order_(order),
        states_(std::size_t{units.cpu} + 1),
        best_((order.size() + 1) * states_),
        placed_(units.num_nets(), 0) {}

  // Empty: it cannot be cut so, or the clock has struck.
  Split cut(const StopClock& clock) {
    best_[0].time = 0;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      if (clock.struck()) return {};
      extend_on_cpu(i);
      extend_on_accelerator(i);
    }
    const Step* last = &best_[order_.size() * states_];
    const Step* end = std::min_element(
        last, last + states_, [](const Step& a, const Step& b) { return a.time < b.time; });
    return end->time == kInfinity ? Split() : walk_back(static_cast<std::size_t>(end - last));
  }

 private:
  struct Step {
    double time = kInfinity;
    std::size_t from = 0;
    bool on_cpu = false;
  };

  void offer(std::size_t to, std::size_t state, const Step& step) {
    Step& known = best_[to * states_ + state];
    if (step.time < known.time) known = step;
  }

  void extend_on_cpu(std::size_t i) {
    if (units_.num_devices == units_.cpu || units_.on_cpu[order_[i]] == 0) return;
    for (std::size_t s = 0; s < states_; ++s) {
      offer(i + 1, s, {best_[i * states_ + s].time + units_.cpu_time[order_[i]], i, true});
    }
  }

  void extend_on_accelerator(std::size_t i) {
    std::fill(placed_.begin(), placed_.end(), 0U);
    double time = 0, bytes = 0;
    constexpr std::size_t kStatesInAStep = 8;
    const auto each = static_cast<std::int64_t>(1 + states_ / kStatesInAStep);
    for (std::size_t j = i; j < order_.size(); ++j) {
      count_steps(each);
      const std::uint32_t u = order_[j];
      bytes += units_.bytes[u];
      if (units_.on_accelerator[u] == 0 || bytes > units_.memory.front()) return;
      time += units_.accelerator_time[u];
      for (const std::uint32_t net : units_.nets[u]) {
        if (placed_[net]++ == 0) time += units_.cost[net];
        if (placed_[net] == units_.pins[net].size()) time -= units_.cost[net];
      }
      for (std::size_t s = 0; s + 1 < states_; ++s) {
        offer(j + 1, s + 1, {best_[i * states_ + s].time + time, i, false});
      }
    }
  }

  Split walk_back(std::size_t state) const {
    Split device(order_.size(), units_.cpu);
    for (std::size_t end = order_.size(); end > 0;) {
      const Step& step = best_[end * states_ + state];
      if (!step.on_cpu) {
        --state;
        for (std::size_t at = step.from; at < end; ++at) {
          device[order_[at]] = static_cast<std::uint32_t>(state);
        }
      }
      end = step.from;
    }
    return device;
  }

  const Instance& units_;
  std::span<const std::uint32_t> order_;
  std::size_t states_;
  std::vector<Step> best_;
  std::vector<std::uint32_t> placed_;
};

}  // namespace

std::vector<std::uint32_t> order_of_units(const LoweredLoad& lowered,
                                          std::span<const std::uint32_t> node_order) {
  std::vector<double> place(lowered.nodes.size(), 0);
  for (std::size_t i = 0; i < node_order.size(); ++i) {
    const std::uint32_t u = lowered.task_of[node_order[i]];
    place[u] += static_cast<double>(i) / static_cast<double>(lowered.nodes[u].size());
  }
  std::vector<std::uint32_t> order(place.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return place[a] < place[b]; });
  return order;
}

std::vector<Split> latency_starts(const Instance& units, std::span<const std::uint32_t> order,
                                  const StopClock& clock, Rng& rng) {
  std::vector<Split> starts;
  if (units.has_cpu()) {
    starts.emplace_back(units.num_tasks(), units.cpu);
    starts.push_back(fill_in_order(units, order));
  }
  // Quadratic: very long lines go without.
  constexpr std::size_t kLongest = 4000;
  if (!order.empty() && order.size() <= kLongest) {
    if (Split cut = SumCutter(units, order).cut(clock); !cut.empty())
      starts.push_back(std::move(cut));
    const std::uint32_t end = far_unit(units, order.front());
    const auto grown = grow_order(units, end, 0, clock, rng);
    if (Split cut = SumCutter(units, grown).cut(clock); !cut.empty())
      starts.push_back(std::move(cut));
  }
  if (auto cut = cut_order(units, order, kInfinity, clock)) starts.push_back(*std::move(cut));
  if (auto filled = fill_memory(units, clock, rng)) starts.push_back(*std::move(filled));
  return starts;
}

}  // namespace kerf::place
