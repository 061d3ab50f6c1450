// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/refine/contract.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kerf::partition {
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
  std::uint32_t a, b;  // a < b
  double cost;
};
std::vector<SharedCost> shared_costs(const UnitProblem& problem) {
  constexpr std::size_t kMostPins = 24;
  std::vector<SharedCost> pairs;
  for (const LoadNet& net : problem.nets) {
    if (net.units.size() > kMostPins) continue;
    for (std::size_t i = 0; i < net.units.size(); ++i) {
      for (std::size_t j = i + 1; j < net.units.size(); ++j) {
        pairs.push_back({net.units[i], net.units[j], net.cost});
      }
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](const SharedCost& x, const SharedCost& y) {
    return std::pair(x.a, x.b) < std::pair(y.a, y.b);
  });
  std::size_t last = 0;
  for (std::size_t i = 1; i < pairs.size(); ++i) {
    if (pairs[i].a == pairs[last].a && pairs[i].b == pairs[last].b) {
      pairs[last].cost += pairs[i].cost;
    } else {
      pairs[++last] = pairs[i];
    }
  }
  pairs.resize(std::min(pairs.size(), last + 1));
  return pairs;
}

// Whether a split with all loads below `limit` may hold the two on different devices.
bool separable(const UnitProblem& problem, const LoadUnit& a, const LoadUnit& b, double shared,
               double limit) {
  const auto on_accelerator = [&](const LoadUnit& unit) {
    return unit.on_accelerator && unit.accelerator_time + shared < limit;
  };
  const auto on_cpu = [&](const LoadUnit& unit) {
    return problem.has_cpu && unit.cpu_time < limit;
  };
  return (on_accelerator(a) && (on_accelerator(b) || on_cpu(b))) ||
         (on_cpu(a) && on_accelerator(b));
}

Contraction unchanged(const UnitProblem& problem) {
  Contraction out;
  out.problem = problem;
  out.merged.resize(problem.units.size());
  std::iota(out.merged.begin(), out.merged.end(), 0U);
  return out;
}

// `after` merges units of what `before` made.
void append(Contraction& before, Contraction after) {
  for (std::uint32_t& unit : before.merged) unit = after.merged[unit];
  before.problem = std::move(after.problem);
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
  to.memory = problem.memory;
  to.units.resize(groups);
  to.unit_of = out.merged;
  for (std::uint32_t u = 0; u < group.size(); ++u) {
    const LoadUnit& unit = problem.units[u];
    LoadUnit& into = to.units[group[u]];
    into.nodes.push_back(u);
    into.accelerator_time += unit.accelerator_time;
    into.cpu_time += unit.cpu_time;
    into.bytes += unit.bytes;
    into.on_accelerator = into.on_accelerator && unit.on_accelerator;
  }
  std::vector<LoadNet> nets;
  for (const LoadNet& net : problem.nets) {
    LoadNet into{net.cost, group[net.source], {}};
    for (const std::uint32_t u : net.units) into.units.push_back(group[u]);
    std::sort(into.units.begin(), into.units.end());
    into.units.erase(std::unique(into.units.begin(), into.units.end()), into.units.end());
    if (into.units.size() >= 2) nets.push_back(std::move(into));
  }
  std::stable_sort(nets.begin(), nets.end(),
                   [](const LoadNet& a, const LoadNet& b) { return a.units < b.units; });
  for (LoadNet& net : nets) {
    if (!to.nets.empty() && to.nets.back().units == net.units) {
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
  Contraction out = unchanged(problem);
  for (bool again = true; again && !clock.struck();) {
    Groups groups(out.problem.units.size());
    for (const SharedCost& pair : shared_costs(out.problem)) {
      const auto& units = out.problem.units;
      if (!separable(problem, units[pair.a], units[pair.b], pair.cost, limit)) {
        groups.join(pair.a, pair.b);
      }
    }
    again = groups.left() < out.problem.units.size();
    if (again) append(out, merge(out.problem, groups.numbers(), groups.left()));
  }
  return out;
}

Contraction coarsen(const UnitProblem& problem, std::size_t target, double most,
                    std::span<const std::uint32_t> device, const StopClock& clock, Rng& rng) {
  Contraction out = unchanged(problem);
  std::vector<std::uint32_t> held(device.begin(), device.end());
  const double mean = problem.total_accelerator_time() /
                      static_cast<double>(std::max<std::size_t>(problem.units.size(), 1));
  while (out.problem.units.size() > target && !clock.struck()) {
    const auto& units = out.problem.units;
    struct Edge {
      double rating;
      std::uint32_t a, b;
    };
    std::vector<Edge> edges;
    for (const SharedCost& pair : shared_costs(out.problem)) {
      const LoadUnit& a = units[pair.a];
      const LoadUnit& b = units[pair.b];
      const bool fits = a.bytes + b.bytes <= problem.memory;
      if (a.accelerator_time + b.accelerator_time > most || !fits ||
          a.on_accelerator != b.on_accelerator || (!held.empty() && held[pair.a] != held[pair.b])) {
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
    if (groups.left() == units.size()) break;
    append(out, merge(out.problem, groups.numbers(), groups.left()));
    if (!held.empty()) held = to_coarse(out, device);
  }
  return out;
}

}  // namespace kerf::partition
