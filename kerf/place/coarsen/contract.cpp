// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/coarsen/contract.h"

#include <algorithm>
#include <utility>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/base/union_find.h"

namespace kerf::place {
namespace {

// Cost of the tensors two units share, for pairs that share one. Tensors with many units are left
// out: they would make all pairs, and what is left out only merges less.
struct SharedCost {
  UnitId a, b;           // a < b
  double cost;           // of all
  double made_by_a = 0;  // of those
  double made_by_b = 0;
};

// Ascending. May stop early when the clock has struck.
std::vector<SharedCost> shared_costs(const Instance& problem, const StopClock& clock) {
  constexpr std::size_t kMostPins = 24;
  constexpr std::uint32_t kUnitsBetweenLooks = 512;
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<SharedCost> pairs;
  std::vector<std::size_t> place(problem.num_units(), kNone);  // in pairs, of (a, unit)
  for (UnitId a{0}; a < problem.num_units(); ++a) {
    if (a % kUnitsBetweenLooks == 0 && clock.struck()) return pairs;
    const std::size_t first = pairs.size();
    for (const NetId net : problem.nets[a]) {
      const auto pins = problem.pins[net];
      if (pins.size() > kMostPins) continue;
      for (auto pin = pins.rbegin(); pin != pins.rend() && *pin > a; ++pin) {
        if (place[*pin] == kNone) {
          place[*pin] = pairs.size();
          pairs.push_back({a, *pin, 0});
        }
        SharedCost& pair = pairs[place[*pin]];
        pair.cost += problem.cost[net];
        if (problem.source[net] == a) pair.made_by_a += problem.cost[net];
        if (problem.source[net] == *pin) pair.made_by_b += problem.cost[net];
      }
    }
    const auto begin = pairs.begin() + static_cast<std::ptrdiff_t>(first);
    for (auto pair = begin; pair != pairs.end(); ++pair) place[pair->b] = kNone;
    std::sort(begin, pairs.end(),
              [](const SharedCost& x, const SharedCost& y) { return x.b < y.b; });
  }
  return pairs;
}

// Whether a split with all loads below `limit` may hold two units on different devices. The two
// fastest accelerators and the CPU stand for all: elsewhere nothing takes less.
class Separability {
 public:
  Separability(const Instance& problem, double limit)
      : limit_(limit),
        link_(problem.charging == Charging::link),
        has_cpu_(problem.has_cpu()),
        slowness_(problem.slowness) {
    std::sort(slowness_.begin(), slowness_.end());
  }

  bool separable(const Unit& a, const Unit& b, const SharedCost& shared) const {
    const bool first = !slowness_.empty();
    const bool second = slowness_.size() > 1;
    return (second && apart(a, slowness_[0], b, slowness_[1], shared)) ||
           (second && apart(a, slowness_[1], b, slowness_[0], shared)) ||
           (first && has_cpu_ && apart(a, slowness_[0], b, kCpu, shared)) ||
           (first && has_cpu_ && apart(a, kCpu, b, slowness_[0], shared));
  }

 private:
  static constexpr double kCpu = -1;  // in place of a slowness

  double time(const Unit& unit, double slowness) const {
    if (slowness == kCpu) return unit.on_cpu ? unit.cpu_time : limit_;
    return unit.on_accelerator ? unit.accelerator_time * slowness : limit_;
  }

  bool apart(const Unit& a, double on_a, const Unit& b, double on_b,
             const SharedCost& shared) const {
    if (!link_) {
      return time(a, on_a) + (on_a == kCpu ? 0 : shared.cost) < limit_ &&
             time(b, on_b) + (on_b == kCpu ? 0 : shared.cost) < limit_;
    }
    const double of_a = time(a, on_a) + shared.made_by_b;
    const double of_b = time(b, on_b) + shared.made_by_a;
    // What a third unit makes is not on both devices, so one of them pays.
    const double others = shared.cost - shared.made_by_a - shared.made_by_b;
    return of_a < limit_ && of_b < limit_ && of_a + of_b + others < 2 * limit_;
  }

  double limit_;
  bool link_;
  bool has_cpu_;
  std::vector<double> slowness_;  // ascending
};

// The most bytes that one device takes, of those an accelerator can run or of the others.
double largest_memory(const Instance& problem, bool on_accelerator) {
  if (!on_accelerator || problem.cpu == 0) {
    return problem.has_cpu() ? problem.memory.back() : kInfinity;
  }
  return *std::max_element(problem.memory.begin(), problem.memory.begin() + problem.cpu);
}

Contraction unchanged(const Instance& problem) {
  Contraction out;
  out.instance = problem;
  out.group_of = count_up<UnitId>(problem.num_units());
  return out;
}

// Merges again and again; the problem it started from is copied only when nothing merged.
class Merger {
 public:
  explicit Merger(const Instance& problem) : start_(problem) {}

  const Instance& problem() const { return out_.group_of.empty() ? start_ : out_.instance; }
  bool merged() const { return !out_.group_of.empty(); }
  const Contraction& contraction() const { return out_; }
  void merge_groups(UnionFind& groups) {
    std::vector<UnitId> number = groups.numbers<UnitId>();
    Instance after = merge(problem(), number, groups.num_sets());
    for (UnitId& unit : out_.group_of) unit = number[unit];
    if (out_.group_of.empty()) out_.group_of = std::move(number);
    out_.instance = std::move(after);
  }
  Contraction take() { return merged() ? std::move(out_) : unchanged(start_); }

 private:
  const Instance& start_;
  Contraction out_;
};

}  // namespace

Contraction contract_uncuttable(const Instance& problem, double limit, const StopClock& clock) {
  const Separability below(problem, limit);
  Merger merger(problem);
  while (limit < kInfinity && !clock.struck()) {
    const Instance& units = merger.problem();
    UnionFind groups(units.num_units());
    for (const SharedCost& pair : shared_costs(units, clock)) {
      if (!below.separable(units.unit(pair.a), units.unit(pair.b), pair)) {
        groups.join(pair.a, pair.b);
      }
    }
    if (groups.num_sets() == units.num_units() || clock.struck()) break;
    merger.merge_groups(groups);
  }
  return merger.take();
}

Contraction coarsen(const Instance& problem, std::size_t target, double most,
                    std::span<const SlotId> device, const StopClock& clock, Rng& rng) {
  Merger merger(problem);
  std::vector<SlotId> held(device.begin(), device.end());
  const double mean = problem.total_accelerator_time() /
                      static_cast<double>(std::max<std::size_t>(problem.num_units(), 1));
  const double memory[] = {largest_memory(problem, false), largest_memory(problem, true)};
  while (merger.problem().num_units() > target && !clock.struck()) {
    const Instance& units = merger.problem();
    struct Edge {
      double rating;
      UnitId a, b;
    };
    std::vector<Edge> edges;
    for (const SharedCost& pair : shared_costs(units, clock)) {
      const Unit a = units.unit(pair.a);
      const Unit b = units.unit(pair.b);
      const bool fits = a.bytes + b.bytes <= memory[a.on_accelerator ? 1 : 0];
      if (a.accelerator_time + b.accelerator_time > most || !fits ||
          a.on_accelerator != b.on_accelerator || a.on_cpu != b.on_cpu ||
          (!held.empty() && held[pair.a] != held[pair.b])) {
        continue;
      }
      // Costly tensors inside, small units first; the factor makes every call another one.
      const double weight = (a.accelerator_time + mean) * (b.accelerator_time + mean);
      edges.push_back({pair.cost / weight * (0.5 + rng.uniform()), pair.a, pair.b});
    }
    std::stable_sort(edges.begin(), edges.end(),
                     [](const Edge& x, const Edge& y) { return x.rating > y.rating; });
    UnionFind groups(units.num_units());
    std::vector<bool> taken(units.num_units(), false);
    for (const Edge& edge : edges) {
      if (taken[edge.a] || taken[edge.b] || groups.num_sets() <= target) continue;
      taken[edge.a] = taken[edge.b] = true;
      groups.join(edge.a, edge.b);
    }
    if (groups.num_sets() == units.num_units() || clock.struck()) break;
    merger.merge_groups(groups);
    if (!held.empty()) held = merger.contraction().to_coarse(device);
  }
  return merger.take();
}

}  // namespace kerf::place
