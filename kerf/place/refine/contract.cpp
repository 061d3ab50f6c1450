// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/refine/contract.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kerf/base/infinity.h"

namespace kerf::place {
namespace {

class Groups {
 public:
  explicit Groups(std::size_t count) : parent_(count), left_(count) {
    std::iota(parent_.begin(), parent_.end(), 0U);
  }
  std::uint32_t find(std::uint32_t unit) {
    while (parent_[unit] != unit) unit = parent_[unit] = parent_[parent_[unit]];
    return unit;
  }
  bool join(std::uint32_t a, std::uint32_t b) {
    a = find(a);
    b = find(b);
    if (a == b) return false;
    parent_[std::max(a, b)] = std::min(a, b);
    --left_;
    return true;
  }
  std::size_t left() const { return left_; }
  // Numbered from 0 in the order of their first units.
  std::vector<std::uint32_t> numbers() {
    std::vector<std::uint32_t> number(parent_.size());
    std::uint32_t next = 0;
    for (std::uint32_t u = 0; u < parent_.size(); ++u) {
      number[u] = find(u) == u ? next++ : number[find(u)];
    }
    return number;
  }

 private:
  std::vector<std::uint32_t> parent_;
  std::size_t left_;
};

// Cost of the tensors two units share, for pairs that share one. Tensors with many units are left
// out: they would make all pairs, and what is left out only merges less.
struct SharedCost {
  std::uint32_t a, b;    // a < b
  double cost;           // of all
  double made_by_a = 0;  // of those
  double made_by_b = 0;
};

// Ascending. May stop early when the clock has struck.
std::vector<SharedCost> shared_costs(const UnitProblem& problem, const StopClock& clock) {
  constexpr std::size_t kMostPins = 24;
  constexpr std::uint32_t kUnitsBetweenLooks = 512;
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<SharedCost> pairs;
  std::vector<std::size_t> place(problem.units.size(), kNone);  // in pairs, of (a, unit)
  for (std::uint32_t a = 0; a < problem.units.size(); ++a) {
    if (a % kUnitsBetweenLooks == 0 && clock.struck()) return pairs;
    const std::size_t first = pairs.size();
    for (const std::uint32_t n : problem.units[a].nets) {
      const LoadNet& net = problem.nets[n];
      if (net.units.size() > kMostPins) continue;
      for (auto pin = net.units.rbegin(); pin != net.units.rend() && *pin > a; ++pin) {
        if (place[*pin] == kNone) {
          place[*pin] = pairs.size();
          pairs.push_back({a, *pin, 0});
        }
        SharedCost& pair = pairs[place[*pin]];
        pair.cost += net.cost;
        if (net.source == a) pair.made_by_a += net.cost;
        if (net.source == *pin) pair.made_by_b += net.cost;
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
  Separability(const UnitProblem& problem, double limit)
      : limit_(limit),
        link_(problem.charging == Charging::link),
        has_cpu_(problem.has_cpu),
        slowness_(problem.slowness) {
    slowness_.resize(problem.cpu(), 1.0);
    std::sort(slowness_.begin(), slowness_.end());
  }

  bool separable(const LoadUnit& a, const LoadUnit& b, const SharedCost& shared) const {
    const bool first = !slowness_.empty();
    const bool second = slowness_.size() > 1;
    return (second && apart(a, slowness_[0], b, slowness_[1], shared)) ||
           (second && apart(a, slowness_[1], b, slowness_[0], shared)) ||
           (first && has_cpu_ && apart(a, slowness_[0], b, kCpu, shared)) ||
           (first && has_cpu_ && apart(a, kCpu, b, slowness_[0], shared));
  }

 private:
  static constexpr double kCpu = -1;  // in place of a slowness

  double time(const LoadUnit& unit, double slowness) const {
    if (slowness == kCpu) return unit.on_cpu ? unit.cpu_time : limit_;
    return unit.on_accelerator ? unit.accelerator_time * slowness : limit_;
  }

  bool apart(const LoadUnit& a, double on_a, const LoadUnit& b, double on_b,
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
double largest_memory(const UnitProblem& problem, bool on_accelerator) {
  if (!on_accelerator || problem.num_accelerators == 0) return problem.cpu_memory;
  double most = 0;
  for (std::uint32_t d = 0; d < problem.cpu(); ++d) most = std::max(most, problem.memory_of(d));
  return most;
}

Contraction unchanged(const UnitProblem& problem) {
  Contraction out;
  out.problem = problem;
  out.merged.resize(problem.units.size());
  std::iota(out.merged.begin(), out.merged.end(), 0U);
  return out;
}

// Merges again and again; the problem it started from is copied only when nothing merged.
class Merger {
 public:
  explicit Merger(const UnitProblem& problem) : start_(problem) {}

  const UnitProblem& problem() const { return out_.merged.empty() ? start_ : out_.problem; }
  bool merged() const { return !out_.merged.empty(); }
  const Contraction& contraction() const { return out_; }
  void merge_groups(Groups& groups) {
    Contraction after = merge(problem(), groups.numbers(), groups.left());
    if (out_.merged.empty()) {
      out_ = std::move(after);
      return;
    }
    for (std::uint32_t& unit : out_.merged) unit = after.merged[unit];
    out_.problem = std::move(after.problem);
  }
  Contraction take() { return merged() ? std::move(out_) : unchanged(start_); }

 private:
  const UnitProblem& start_;
  Contraction out_;
};

void merge_units(const UnitProblem& problem, std::span<const std::uint32_t> group,
                 UnitProblem& to) {
  for (std::uint32_t u = 0; u < group.size(); ++u) {
    const LoadUnit& unit = problem.units[u];
    LoadUnit& into = to.units[group[u]];
    into.nodes.push_back(u);
    into.accelerator_time += unit.accelerator_time;
    into.cpu_time += unit.cpu_time;
    into.bytes += unit.bytes;
    into.on_accelerator = into.on_accelerator && unit.on_accelerator;
    into.on_cpu = into.on_cpu && unit.on_cpu;
  }
}

// Ascending by units, and by source where it counts who makes a tensor.
std::vector<LoadNet> merged_nets(const UnitProblem& problem, std::span<const std::uint32_t> group) {
  std::vector<LoadNet> nets;
  for (const LoadNet& net : problem.nets) {
    LoadNet into{net.cost, group[net.source], {}};
    into.units.reserve(net.units.size());
    for (const std::uint32_t u : net.units) into.units.push_back(group[u]);
    std::sort(into.units.begin(), into.units.end());
    into.units.erase(std::unique(into.units.begin(), into.units.end()), into.units.end());
    if (into.units.size() >= 2) nets.push_back(std::move(into));
  }
  const bool by_source = problem.charging == Charging::link;
  std::stable_sort(nets.begin(), nets.end(), [&](const LoadNet& a, const LoadNet& b) {
    if (by_source && a.units == b.units) return a.source < b.source;
    return a.units < b.units;
  });
  return nets;
}

}  // namespace

std::vector<std::uint32_t> Contraction::to_fine(std::span<const std::uint32_t> device) const {
  std::vector<std::uint32_t> out;
  for (const std::uint32_t unit : merged) out.push_back(device[unit]);
  return out;
}

std::vector<std::uint32_t> to_coarse(const Contraction& contraction,
                                     std::span<const std::uint32_t> device) {
  std::vector<std::uint32_t> out(contraction.problem.units.size(), 0);
  for (std::size_t u = 0; u < device.size(); ++u) out[contraction.merged[u]] = device[u];
  return out;
}

Contraction merge(const UnitProblem& problem, std::span<const std::uint32_t> group,
                  std::size_t groups) {
  Contraction out;
  out.merged.assign(group.begin(), group.end());
  UnitProblem& to = out.problem;
  to.num_accelerators = problem.num_accelerators;
  to.has_cpu = problem.has_cpu;
  to.charging = problem.charging;
  to.memory = problem.memory;
  to.slowness = problem.slowness;
  to.memories = problem.memories;
  to.cpu_memory = problem.cpu_memory;
  to.units.resize(groups);
  to.unit_of = out.merged;
  merge_units(problem, group, to);
  const bool by_source = problem.charging == Charging::link;
  for (LoadNet& net : merged_nets(problem, group)) {
    if (!to.nets.empty() && to.nets.back().units == net.units &&
        (!by_source || to.nets.back().source == net.source)) {
      to.nets.back().cost += net.cost;
      continue;
    }
    for (const std::uint32_t u : net.units) {
      to.units[u].nets.push_back(static_cast<std::uint32_t>(to.nets.size()));
    }
    to.nets.push_back(std::move(net));
  }
  return out;
}

Contraction contract_uncuttable(const UnitProblem& problem, double limit, const StopClock& clock) {
  const Separability below(problem, limit);
  Merger merger(problem);
  while (limit < kInfinity && !clock.struck()) {
    const auto& units = merger.problem().units;
    Groups groups(units.size());
    for (const SharedCost& pair : shared_costs(merger.problem(), clock)) {
      if (!below.separable(units[pair.a], units[pair.b], pair)) groups.join(pair.a, pair.b);
    }
    if (groups.left() == units.size() || clock.struck()) break;
    merger.merge_groups(groups);
  }
  return merger.take();
}

Contraction coarsen(const UnitProblem& problem, std::size_t target, double most,
                    std::span<const std::uint32_t> device, const StopClock& clock, Rng& rng) {
  Merger merger(problem);
  std::vector<std::uint32_t> held(device.begin(), device.end());
  const double mean = problem.total_accelerator_time() /
                      static_cast<double>(std::max<std::size_t>(problem.units.size(), 1));
  const double memory[] = {largest_memory(problem, false), largest_memory(problem, true)};
  while (merger.problem().units.size() > target && !clock.struck()) {
    const auto& units = merger.problem().units;
    struct Edge {
      double rating;
      std::uint32_t a, b;
    };
    std::vector<Edge> edges;
    for (const SharedCost& pair : shared_costs(merger.problem(), clock)) {
      const LoadUnit& a = units[pair.a];
      const LoadUnit& b = units[pair.b];
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
    Groups groups(units.size());
    std::vector<bool> taken(units.size(), false);
    for (const Edge& edge : edges) {
      if (taken[edge.a] || taken[edge.b] || groups.left() <= target) continue;
      taken[edge.a] = taken[edge.b] = true;
      groups.join(edge.a, edge.b);
    }
    if (groups.left() == units.size() || clock.struck()) break;
    merger.merge_groups(groups);
    if (!held.empty()) held = to_coarse(merger.contraction(), device);
  }
  return merger.take();
}

}  // namespace kerf::place
