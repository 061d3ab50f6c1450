// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem: cut a topological order into k runs, run i for part i, the largest load or the sum of
// cut nets least. Method: dynamic programming over (parts used, position); a sweep from each
// position extends the run vertex by vertex and keeps up its time, bytes and tensors. O(n w (k +
// degree)) with w the longest run that keeps the limits. Optimal for the order.
#include "kerf/place/acyclic/order_cut.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"

namespace kerf::place::acyclic {
namespace {

struct Stretch {
  double time = 1;
  double memory = 1;
};

class RunTable {
 public:
  RunTable(const Instance& level, const Goal& goal, std::span<const UnitId> order)
      : level_(level),
        goal_(goal),
        order_(order),
        n_(level.num_units()),
        k_(goal.parts()),
        first_(level.num_nets(), n_),
        held_(level.num_nets(), 0),
        held_at_(level.num_nets(), kNoIndex) {
    for (std::uint32_t i = 0; i < n_; ++i) {
      for (const NetId net : level.nets[order[i]]) first_[net] = std::min(first_[net], i);
    }
  }
  // Runs' ends by part; empty: none keep the limits.
  Numbers solve(const Stretch& stretch, double& work) {
    stretch_ = stretch;
    value_.assign(std::size_t{k_ + 1} * (n_ + std::size_t{1}), kInfinity);
    from_.assign(value_.size(), kNoIndex);
    value_[at(0, 0)] = 0;
    for (std::uint32_t a = 0; a < n_; ++a) {
      leave_parts_empty(a);
      sweep(a, work);
    }
    leave_parts_empty(n_);
    if (value_[at(k_, n_)] == kInfinity) return {};
    Numbers ends(k_, n_);
    std::uint32_t b = n_;
    for (std::uint32_t i = k_; i > 0; --i) {
      ends[i - 1] = b;
      b = from_[at(i, b)];
    }
    return ends;
  }

 private:
  struct Run {
    double time = 0;
    double bytes = 0;
    double transfer = 0;
    double cut = 0;
    std::uint32_t timed = 0;
  };
  std::size_t at(std::uint32_t parts, std::uint32_t position) const {
    return std::size_t{position} * (k_ + std::size_t{1}) + parts;
  }
  void offer(std::uint32_t parts, std::uint32_t position, double value, std::uint32_t from) {
    const std::size_t to = at(parts, position);
    if (value >= value_[to]) return;
    value_[to] = value;
    from_[to] = from;
  }
  // An empty part costs an edge cut more than any cut.
  void leave_parts_empty(std::uint32_t a) {
    const double price = goal_.is_cut() ? 1e15 : 0;
    for (std::uint32_t i = 0; i < k_; ++i) {
      const double value = value_[at(i, a)];
      if (value < kInfinity) offer(i + 1, a, value + price, a);
    }
  }
  void sweep(std::uint32_t a, double& work) {
    std::uint32_t low = k_;
    std::uint32_t high = 0;
    for (std::uint32_t i = 0; i < k_; ++i) {
      if (value_[at(i, a)] == kInfinity) continue;
      low = std::min(low, i);
      high = i + 1;
    }
    if (low == k_) return;
    Run run;
    for (std::uint32_t b = a + 1; b <= n_; ++b) {
      work += 1.0 + 2.0 * static_cast<double>(level_.nets[order_[b - 1]].size());
      extend(run, order_[b - 1], a);
      bool fits = false;
      for (SlotId i{low}; i < high; ++i) fits = enter(run, i, a, b) || fits;
      if (!fits) return;
    }
  }
  // Whether a longer run of the part can still fit.
  bool enter(const Run& run, SlotId part, std::uint32_t a, std::uint32_t b) {
    const double before = value_[at(part, a)];
    if (before == kInfinity) return false;
    if (run.bytes > level_.memory[part] * stretch_.memory) return false;
    if (goal_.is_cut()) {
      if (run.timed > 1 && run.time > goal_.limit[part] * stretch_.time) return false;
      offer(part + 1, b, before + run.cut, a);
      return true;
    }
    const double bound = goal_.least_load * stretch_.time;
    const double time = level_.slowness[part] * run.time;
    if (time > bound && stretch_.time < kInfinity) return false;
    const double load = time + run.transfer;
    if (load <= bound || stretch_.time == kInfinity) {
      offer(part + 1, b, std::max(before, load), a);
    }
    return true;
  }
  void extend(Run& run, UnitId v, std::uint32_t a) {
    run.time += level_.accelerator_time[v];
    run.bytes += level_.bytes[v];
    if (level_.accelerator_time[v] > 0) ++run.timed;
    for (const NetId net : level_.nets[v]) {
      if (held_at_[net] != a) {
        held_at_[net] = a;
        held_[net] = 0;
      }
      const double cost = level_.cost[net];
      const bool is_first = ++held_[net] == 1;
      if (is_first && first_[net] < a) run.cut += cost;
      if (level_.charging == Charging::host_staged) {
        if (is_first) run.transfer += cost;
        if (held_[net] == level_.pins[net].size()) run.transfer -= cost;
      } else if (level_.source[net] == v) {
        if (!is_first) run.transfer -= cost;
      } else if (is_first) {
        run.transfer += cost;
      }
    }
  }

  const Instance& level_;
  const Goal& goal_;
  std::span<const UnitId> order_;
  std::uint32_t n_;
  std::uint32_t k_;
  Stretch stretch_;
  Numbers first_;    // by net, position of its first pin
  Numbers held_;     // by net, pins in the run
  Numbers held_at_;  // by net, the start of the run `held_` is about
  std::vector<double> value_;
  Numbers from_;
};

constexpr std::array<Stretch, 14> kStretches = {{{1.0001, 1},
                                                 {1.03, 1},
                                                 {1.1, 1},
                                                 {1.25, 1},
                                                 {1.6, 1},
                                                 {2.5, 1},
                                                 {5, 1},
                                                 {15, 1},
                                                 {kInfinity, 1},
                                                 {kInfinity, 1.05},
                                                 {kInfinity, 1.2},
                                                 {kInfinity, 1.6},
                                                 {kInfinity, 2.5},
                                                 {kInfinity, kInfinity}}};

Split cut_exactly(const Instance& level, const Goal& goal, std::span<const UnitId> order,
                  double& work) {
  RunTable table(level, goal, order);
  Numbers ends;
  for (std::size_t i = goal.is_cut() ? 0 : 1; ends.empty(); ++i) {
    ends = table.solve(kStretches.at(i), work);
  }
  Split part(level.num_units(), SlotId{0});
  SlotId p{0};
  for (std::uint32_t i = 0; i < level.num_units(); ++i) {
    while (ends[p] <= i) ++p;
    part[order[i]] = p;
  }
  return part;
}

// By position: the cost of the nets that are open there.
std::vector<double> open_costs(const Instance& level, std::span<const UnitId> order) {
  std::vector<double> out;
  out.reserve(order.size() + 1);
  Numbers placed(level.num_nets(), 0);
  double open = 0;
  for (const UnitId v : order) {
    out.push_back(open);
    for (const NetId net : level.nets[v]) {
      const std::uint32_t count = ++placed[net];
      if (count == 1) open += level.cost[net];
      if (count == level.pins[net].size()) open -= level.cost[net];
    }
  }
  out.push_back(open);
  return out;
}

// run[vertex]: about `blocks` runs of about equal weight, each ending where few nets are open.
std::vector<UnitId> find_blocks(const Instance& level, const Goal& goal,
                                std::span<const UnitId> order, std::uint32_t blocks) {
  const std::vector<double> open = open_costs(level, order);
  const auto weight_of = [&](UnitId v) {
    double out = 1.0 / static_cast<double>(level.num_units());
    if (goal.total_time > 0) out += level.accelerator_time[v] / goal.total_time;
    if (goal.memory_binds) out += level.bytes[v] / goal.total_bytes;
    return out;
  };
  const double total = 2.0 + (goal.memory_binds ? 1.0 : 0.0);
  const double least = 0.5 * total / blocks;
  const double most = 1.5 * total / blocks;
  const auto n = static_cast<std::uint32_t>(order.size());
  std::vector<UnitId> out(n);
  UnitId block{0};
  for (std::uint32_t begin = 0; begin < n; ++block) {
    double weight = 0;
    std::uint32_t end = begin + 1;
    double fewest = kInfinity;
    for (std::uint32_t i = begin; i < n; ++i) {
      weight += weight_of(order[i]);
      if (i > begin && weight > most) break;
      if (weight < least && i + 1 < n) continue;
      if (open[i + 1] < fewest || i + 1 == n) {
        fewest = open[i + 1];
        end = i + 1;
      }
    }
    // All that came before stayed small, and the next one alone is larger than a block.
    if (fewest == kInfinity) {
      weight = 0;
      for (end = begin + 1; end < n; ++end) {
        weight += weight_of(order[end - 1]);
        if (weight + weight_of(order[end]) > most) break;
      }
    }
    for (std::uint32_t i = begin; i < end; ++i) out[order[i]] = block;
    begin = end;
  }
  return out;
}

// Two parts: what a position cuts is what is open there. Empty: no position keeps the limits.
Split cut_once(const Instance& level, const Goal& goal, std::span<const UnitId> order,
               double& work) {
  const std::vector<double> open = open_costs(level, order);
  work += 2.0 * (static_cast<double>(level.num_units()) + level.num_nets());
  double time = 0;
  double bytes = 0;
  std::size_t best = 0;
  double fewest = kInfinity;
  for (std::size_t i = 1; i < order.size(); ++i) {
    time += level.accelerator_time[order[i - 1]];
    bytes += level.bytes[order[i - 1]];
    if (time > goal.limit[0] || goal.total_time - time > goal.limit[1]) continue;
    if (bytes > level.memory[0] || goal.total_bytes - bytes > level.memory[1]) continue;
    if (open[i] >= fewest) continue;
    fewest = open[i];
    best = i;
  }
  if (best == 0) return {};
  Split part(level.num_units(), SlotId{0});
  for (std::size_t i = best; i < order.size(); ++i) part[order[i]] = SlotId{1};
  return part;
}

// run[vertex] for an order of part after part.
std::vector<UnitId> find_zoned_blocks(const Instance& level, std::span<const SlotId> part,
                                      std::span<const UnitId> along, double zone) {
  constexpr double kSmall = 12;  // blocks at each end of a part
  constexpr double kLarge = 12;  // in its middle
  const auto weight_of = [&](UnitId v) { return level.accelerator_time[v]; };
  std::vector<UnitId> out(level.num_units());
  UnitId block{0};
  for (std::size_t begin = 0; begin < along.size(); ++block) {
    std::size_t end = begin;
    double total = 0;
    for (; end < along.size() && part[along[end]] == part[along[begin]]; ++end) {
      total += weight_of(along[end]);
    }
    const auto count = static_cast<double>(end - begin);
    double passed = 0;
    double held = 0;
    for (std::size_t i = begin; i < end; ++i) {
      // By time and by number: groups without time need borders too.
      const double each = 0.5 * (total > 0 ? weight_of(along[i]) / total : 1 / count) + 0.5 / count;
      const bool is_small = passed < zone || passed > 1 - zone;
      if (i > begin && held + each > (is_small ? zone / kSmall : 1 / kLarge)) {
        ++block;
        held = 0;
      }
      out[along[i]] = block;
      held += each;
      passed += each;
    }
    begin = end;
  }
  return out;
}

Split cut_blocks(const Instance& level, const Goal& goal, std::span<const UnitId> run,
                 double& work) {
  const std::uint32_t count = run.empty() ? 0 : *std::ranges::max_element(run) + 1;
  const Instance blocks = merge(level, run, count);
  work += 4.0 * (static_cast<double>(level.num_units()) + level.num_nets());
  const Split of_block = cut_exactly(blocks, goal, count_up<UnitId>(count), work);
  Split part(level.num_units());
  for (UnitId v{0}; v < level.num_units(); ++v) part[v] = of_block[run[v]];
  return part;
}

}  // namespace

Split cut_again(const Instance& level, const Goal& goal, std::span<const SlotId> part,
                std::span<const UnitId> order, double zone, double& work) {
  Order along(order.begin(), order.end());
  std::ranges::stable_sort(along, {}, [&](UnitId v) { return part[v]; });
  return cut_blocks(level, goal, find_zoned_blocks(level, part, along, zone), work);
}

Split cut_order(const Instance& level, const Goal& goal, std::span<const UnitId> order,
                double& work) {
  if (goal.is_cut() && goal.parts() == 2) {
    Split part = cut_once(level, goal, order, work);
    if (!part.empty()) return part;
  }
  const std::uint32_t most = std::max(1000U, 40 * goal.parts());
  if (level.num_units() <= 2 * most) return cut_exactly(level, goal, order, work);
  return cut_blocks(level, goal, find_blocks(level, goal, order, most), work);
}

}  // namespace kerf::place::acyclic
