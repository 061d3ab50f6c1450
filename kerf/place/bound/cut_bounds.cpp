// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Minimum cuts around one or two units. A device that holds a unit pays at most what the unit pays
// alone: units are asked in this order, and past the best answer none need be asked. Valid for any
// split; not claimed tight.
#include "kerf/place/bound/cut_bounds.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/place/pack/cost_scale.h"

namespace kerf::place {
CutBounds::CutBounds(const Instance& problem, SearchBudget budget)
    : problem_(&problem), budget_(budget), known_(problem.num_units(), -1) {
  scratch_.budget = &budget_;
  scratch_.steps += building_steps(problem);
  if (scratch_.out_of_budget()) return;
  network_.emplace(problem, scale_for(find_cost_scale(problem).ceiling));
  for (const DeviceKind& kind : network_->kinds) flows_.push_back(load_network(*network_, kind));
  find_order();
}

void CutBounds::find_order() {
  std::vector<Flow> moved(problem_->num_units(), 0);
  for (NetId net{0}; net < problem_->num_nets(); ++net) {
    for (const UnitId u : problem_->pins[net]) {
      const bool free = problem_->charging == Charging::link && u == problem_->source[net];
      if (!free) moved[u] += network_->cost[net];
    }
  }
  alone_.assign(moved.size(), kInfinity);
  for (const DeviceKind& kind : network_->kinds) {
    for (std::size_t u = 0; u < moved.size(); ++u) {
      if (kind.holds[u] == 0) continue;
      const Flow load = kind.time[u] + (kind.pays ? moved[u] : 0);
      alone_[u] = std::min(alone_[u], network_->to_time(load));
    }
  }
  order_ = count_up<UnitId>(moved.size());
  std::stable_sort(order_.begin(), order_.end(),
                   [&](UnitId a, UnitId b) { return alone_[a] > alone_[b]; });
}

// Least load of an accelerator, or of the CPU, that holds `in` and not `out`; infinite if none can.
// The fastest that has the memory pays least. Lower when the budget ends.
double CutBounds::least_load(std::span<const UnitId> in, std::span<const UnitId> out, bool on_cpu) {
  double bytes = 0;
  Flow time = 0;
  for (const UnitId u : in) bytes += problem_->bytes[u];
  for (std::size_t k = 0; k < network_->kinds.size(); ++k) {
    const DeviceKind& kind = network_->kinds[k];
    const bool holds =
        std::all_of(in.begin(), in.end(), [&](UnitId u) { return kind.holds[u] != 0; });
    const bool is_cpu = kind.devices.front() == problem_->cpu;
    if (!holds || !kind.has_room(bytes) || is_cpu != on_cpu) continue;
    for (const UnitId u : in) time += kind.time[u];
    if (!kind.pays) return network_->to_time(time);
    MaxFlow& flow = flows_[k];
    flow.mark();
    for (const UnitId u : in) flow.add_source(u, kEndless / 4);
    for (const UnitId u : out) flow.add_sink(u, kEndless / 4);
    flow.augment(scratch_, kEndless / 8);
    const double load = network_->to_time(flow.value());
    flow.undo();
    return load;
  }
  return kInfinity;
}

double CutBounds::least_load_of(UnitId unit) {
  if (known_[unit] >= 0) return known_[unit];
  const std::array<UnitId, 1> in{unit};
  double least = least_load(in, {}, true);
  // The cut on an accelerator is at most what the unit alone pays there.
  least = std::min(least, least_load(in, {}, false));
  known_[unit] = least;
  return least;
}

LowerBound CutBounds::cut() {
  double most = 0;
  for (const UnitId u : order_) {
    if (alone_[u] <= most || scratch_.out_of_budget()) break;
    most = std::max(most, least_load_of(u));
  }
  return {"cut", shaved(most, problem_->num_units()),
          "the device that holds a certain unit pays at least this much, whatever else it holds (a "
          "minimum cut)"};
}

// The units whose own cuts are largest, as far as the budget goes.
std::vector<UnitId> CutBounds::find_candidates(std::size_t count) {
  std::vector<std::pair<double, UnitId>> best;  // the largest first
  for (const UnitId u : order_) {
    if (best.size() == count && alone_[u] <= -best.back().first) break;
    if (count == 0 || scratch_.out_of_budget()) break;
    const std::pair<double, UnitId> own{-least_load_of(u), u};
    best.insert(std::upper_bound(best.begin(), best.end(), own), own);
    if (best.size() > count) best.pop_back();
  }
  std::vector<UnitId> out;
  for (const auto& [load, unit] : best) out.push_back(unit);
  return out;
}

// Least max load of the devices of two units.
double CutBounds::pair_load(UnitId a, UnitId b) {
  const std::array<UnitId, 2> both{a, b};
  const std::span<const UnitId> one(&both[0], 1);
  const std::span<const UnitId> other(&both[1], 1);
  const double together = std::min(least_load(both, {}, false), least_load(both, {}, true));
  const double alone_a = least_load(one, other, false);
  const double alone_b = least_load(other, one, false);
  const double cpu_a = least_load(one, other, true);
  const double cpu_b = least_load(other, one, true);
  double apart = std::min(std::max(cpu_a, alone_b), std::max(alone_a, cpu_b));
  if (problem_->cpu > 1) apart = std::min(apart, std::max(alone_a, alone_b));
  return std::min(together, apart);
}

LowerBound CutBounds::pair(std::size_t candidates) {
  const std::vector<UnitId> units = find_candidates(candidates);
  double most = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    for (std::size_t j = 0; j < i && !scratch_.out_of_budget(); ++j) {
      most = std::max(most, pair_load(units[i], units[j]));
    }
  }
  return {
      "pair", shaved(most, problem_->num_units()),
      "two units, on one device or on two, make some device pay at least this much (minimum cuts)"};
}

}  // namespace kerf::place
