// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: a line of units is cut into intervals, each on a device of its own, so that the largest
// load (compute and tensors that cross the interval's border) is least. Dynamic programme over
// (end, accelerators used, CPU used), O(blocks^2 x devices); optimal for the line, not for the
// problem.
#include "kerf/partition/refine/order_starts.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

namespace kerf::partition {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::uint32_t kNone = static_cast<std::uint32_t>(-1);

// Keeps what grow_order knows of tensors: how many of their units are placed.
class Frontier {
 public:
  explicit Frontier(const FlatUnits& units)
      : units_(units), placed_(units.cost.size(), 0), state_(units.num_units(), kFar) {}

  bool placed(std::uint32_t unit) const { return state_[unit] == kPlaced; }
  std::span<const std::uint32_t> open() const { return open_; }

  void place(std::uint32_t unit) {
    if (state_[unit] == kOpen) {
      // From the end: that is where recent ones are, and they are looked at first.
      const auto at = std::find(open_.rbegin(), open_.rend(), unit);
      open_.erase(std::next(at).base());
    }
    state_[unit] = kPlaced;
    for (const std::uint32_t net : units_.nets(unit)) {
      if (placed_[net]++ > 0) continue;
      for (const std::uint32_t other : units_.pins(net)) {
        if (state_[other] != kFar) continue;
        state_[other] = kOpen;
        open_.push_back(other);
      }
    }
  }

  // What the open tensors cost more once `unit` is placed.
  double growth(std::uint32_t unit) const {
    double growth = 0;
    for (const std::uint32_t net : units_.nets(unit)) {
      const std::uint32_t pins = units_.first_pin[net + 1] - units_.first_pin[net];
      if (placed_[net] == 0) growth += units_.cost[net];
      if (placed_[net] + 1 == pins) growth -= units_.cost[net];
    }
    return growth;
  }

 private:
  enum State : std::uint8_t { kFar, kOpen, kPlaced };
  const FlatUnits& units_;
  std::vector<std::uint32_t> placed_;
  std::vector<State> state_;
  std::vector<std::uint32_t> open_;
};

std::uint32_t next_open(const Frontier& frontier, double noise, Rng& rng) {
  std::uint32_t best = kNone;
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
std::vector<std::size_t> blocks_of(const FlatUnits& units, std::span<const std::uint32_t> order) {
  std::vector<std::size_t> begin;
  const std::size_t count = order.size();
  if (count <= kMaxBlocks) {
    begin.resize(count + 1);
    std::iota(begin.begin(), begin.end(), std::size_t{0});
    return begin;
  }
  double total = 0;
  for (const std::uint32_t u : order) total += units.accelerator_time[u];
  const double step = 2 * total / kMaxBlocks;
  const std::size_t most = 2 * count / kMaxBlocks;
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

class LineCutter {
 public:
  LineCutter(const FlatUnits& units, std::span<const std::uint32_t> order, double limit)
      : units_(units),
        order_(order),
        limit_(limit),
        begin_(blocks_of(units, order)),
        blocks_(begin_.size() - 1),
        states_(2 * (std::size_t{units.cpu} + 1)),
        best_((blocks_ + 1) * states_),
        placed_(units.cost.size(), 0) {}

  std::optional<std::vector<std::uint32_t>> cut() {
    for (std::size_t s = 0; s < states_; ++s) best_[s].load = s == 0 ? 0 : kInfinity;
    for (std::size_t i = 0; i < blocks_; ++i) extend_from(i);
    const Step* last = &best_[blocks_ * states_];
    const Step* end = std::min_element(
        last, last + states_, [](const Step& a, const Step& b) { return a.load < b.load; });
    if (end->load == kInfinity) return std::nullopt;
    return walk_back(static_cast<std::size_t>(end - last));
  }

 private:
  // State 2 * accelerators used + CPU used.
  struct Step {
    double load = kInfinity;
    std::uint32_t from_block = 0;
    std::uint32_t from_state = 0;
  };

  void offer(std::size_t to, std::size_t state, std::size_t from, std::size_t from_state,
             double load) {
    Step& step = best_[to * states_ + state];
    if (load >= step.load) return;
    step = {load, static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(from_state)};
  }

  // All intervals that begin at block i, their load kept up as they grow.
  void extend_from(std::size_t i) {
    std::fill(placed_.begin(), placed_.end(), 0U);
    double load = 0, compute = 0, cpu_load = 0, bytes = 0;
    bool runs = true;
    for (std::size_t j = i; j < blocks_; ++j) {
      for (std::size_t at = begin_[j]; at < begin_[j + 1]; ++at) {
        const std::uint32_t u = order_[at];
        load += units_.accelerator_time[u] + tensors_of(u);
        compute += units_.accelerator_time[u];
        cpu_load += units_.cpu_time[u];
        bytes += units_.bytes[u];
        runs = runs && units_.on_accelerator[u] != 0;
      }
      const bool fits = runs && bytes <= units_.memory;
      if ((!fits || compute >= limit_) && cpu_load >= limit_) return;
      for (std::size_t s = 0; s < states_; ++s) {
        const double before = best_[i * states_ + s].load;
        if (before == kInfinity) continue;
        if (fits && s + 2 < states_) offer(j + 1, s + 2, i, s, std::max(before, load));
        if (s % 2 == 0 && units_.num_devices > units_.cpu) {
          offer(j + 1, s + 1, i, s, std::max(before, cpu_load));
        }
      }
    }
  }

  // What the interval's tensors cost more with `unit` in it.
  double tensors_of(std::uint32_t unit) {
    double change = 0;
    for (const std::uint32_t net : units_.nets(unit)) {
      const std::uint32_t pins = units_.first_pin[net + 1] - units_.first_pin[net];
      if (placed_[net]++ == 0) change += units_.cost[net];
      if (placed_[net] == pins) change -= units_.cost[net];
    }
    return change;
  }

  std::vector<std::uint32_t> walk_back(std::size_t state) const {
    std::vector<std::uint32_t> device(order_.size(), 0);
    for (std::size_t block = blocks_; block > 0;) {
      const Step& step = best_[block * states_ + state];
      const bool on_cpu = state % 2 != step.from_state % 2;
      const auto to = on_cpu ? units_.cpu : static_cast<std::uint32_t>(step.from_state / 2);
      for (std::size_t at = begin_[step.from_block]; at < begin_[block]; ++at) {
        device[order_[at]] = to;
      }
      block = step.from_block;
      state = step.from_state;
    }
    return device;
  }

  const FlatUnits& units_;
  std::span<const std::uint32_t> order_;
  double limit_;
  std::vector<std::size_t> begin_;
  std::size_t blocks_;
  std::size_t states_;
  std::vector<Step> best_;
  std::vector<std::uint32_t> placed_;
};

}  // namespace

std::vector<std::uint32_t> grow_order(const FlatUnits& units, std::uint32_t first, double noise,
                                      Rng& rng) {
  Frontier frontier(units);
  std::vector<std::uint32_t> order;
  std::uint32_t unplaced = 0;
  for (std::uint32_t next = first; next != kNone;) {
    frontier.place(next);
    order.push_back(next);
    next = next_open(frontier, noise, rng);
    if (next != kNone) continue;
    // Nothing hangs on what is placed: go on with another component.
    while (unplaced < units.num_units() && frontier.placed(unplaced)) ++unplaced;
    if (unplaced < units.num_units()) next = unplaced;
  }
  return order;
}

std::vector<std::uint32_t> reach_order(const UnitProblem& problem, Rng& rng) {
  std::vector<std::vector<std::uint32_t>> readers(problem.units.size());
  for (const LoadNet& net : problem.nets) {
    for (const std::uint32_t u : net.units) {
      if (u != net.source) readers[net.source].push_back(u);
    }
  }
  for (auto& list : readers) {
    for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[rng.below(i)]);
  }
  std::vector<std::uint32_t> order;
  std::vector<bool> seen(problem.units.size(), false);
  std::vector<std::pair<std::uint32_t, std::size_t>> stack;
  for (std::uint32_t root = 0; root < problem.units.size(); ++root) {
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

std::uint32_t far_unit(const FlatUnits& units, std::uint32_t from) {
  std::vector<bool> seen(units.num_units(), false);
  std::vector<bool> crossed(units.cost.size(), false);
  std::vector<std::uint32_t> queue{from};
  seen[from] = true;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const std::uint32_t net : units.nets(queue[i])) {
      if (crossed[net]) continue;
      crossed[net] = true;
      for (const std::uint32_t other : units.pins(net)) {
        if (seen[other]) continue;
        seen[other] = true;
        queue.push_back(other);
      }
    }
  }
  return queue.back();
}

std::optional<std::vector<std::uint32_t>> cut_order(const FlatUnits& units,
                                                    std::span<const std::uint32_t> order,
                                                    double limit) {
  return LineCutter(units, order, limit).cut();
}

}  // namespace kerf::partition
