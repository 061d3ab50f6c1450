// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/pack/cost_scale.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/base/union_find.h"
#include "kerf/place/pack/bins.h"

namespace kerf::place {
namespace {

double time_where_it_runs(const Instance& problem, UnitId unit, SlotId device) {
  return problem.runs_on(unit, device) ? problem.time(unit, device) : kInfinity;
}

// One device of each kind: the fastest accelerators first, the CPU.
Split typical_devices(const Instance& problem) {
  constexpr std::size_t kMostKinds = 8;
  Split devices = count_up<SlotId>(problem.cpu);
  if (problem.has_equal_accelerators()) devices.resize(std::min<std::size_t>(devices.size(), 1));
  std::stable_sort(devices.begin(), devices.end(),
                   [&](SlotId a, SlotId b) { return problem.slowness[a] < problem.slowness[b]; });
  devices.resize(std::min(devices.size(), kMostKinds));
  if (problem.has_cpu()) devices.push_back(problem.cpu);
  return devices;
}

Split each_where_fastest(const Instance& problem, const Split& devices) {
  Split out;
  for (UnitId u{0}; u < problem.num_units(); ++u) {
    out.push_back(*std::min_element(devices.begin(), devices.end(), [&](SlotId a, SlotId b) {
      return time_where_it_runs(problem, u, a) < time_where_it_runs(problem, u, b);
    }));
  }
  return out;
}

// Units that are to stay together, as one.
struct Clump {
  std::vector<UnitId> units;
  double bytes = 0;
};

std::vector<Clump> clump_by_nets(const Instance& problem, double dearest_cut) {
  UnionFind together(problem.num_units());
  for (NetId net{0}; net < problem.num_nets(); ++net) {
    if (problem.cost[net] <= dearest_cut) continue;
    for (const UnitId u : problem.pins[net]) together.join_to(problem.source[net], u);
  }
  std::vector<Clump> all(problem.num_units());
  for (UnitId u{0}; u < problem.num_units(); ++u) {
    Clump& clump = all[together.find(u)];
    clump.units.push_back(u);
    clump.bytes += problem.bytes[u];
  }
  std::erase_if(all, [](const Clump& clump) { return clump.units.empty(); });
  std::stable_sort(all.begin(), all.end(),
                   [](const Clump& a, const Clump& b) { return a.bytes > b.bytes; });
  return all;
}

// The largest first, each where it is done first of where it has room; nothing: one has none.
std::optional<Split> fill(const Instance& problem, const std::vector<Clump>& clumps) {
  Bins bins(problem);
  for (const Clump& clump : clumps) {
    if (!bins.put_where_done_first(clump.units)) return std::nullopt;
  }
  return bins.take_devices();
}

// Costs of nets from the largest down, far apart: above which of them none is to be cut.
std::vector<double> dearest_cuts(const Instance& problem) {
  constexpr double kFarApart = 16;
  constexpr std::size_t kMost = 24;
  std::vector<double> costs = problem.cost;
  std::sort(costs.begin(), costs.end(), std::greater<>());
  std::vector<double> out{kInfinity};
  for (const double cost : costs) {
    if (out.size() < kMost && cost * kFarApart < out.back()) out.push_back(cost);
  }
  return out;
}

double best_of_simple_splits(const Instance& problem) {
  double best = kInfinity;
  const auto offer = [&](const Split& split) {
    const Loads loads = find_loads(problem, split);
    if (loads.fits) best = std::min(best, loads.busiest);
  };
  const Split devices = typical_devices(problem);
  for (const SlotId device : devices) offer(Split(problem.num_units(), device));
  offer(each_where_fastest(problem, devices));
  constexpr std::size_t kMostSteps = 20'000'000;
  std::size_t steps = 0;
  for (const double dearest : dearest_cuts(problem)) {
    steps += std::size_t{problem.num_units()} * problem.num_devices + problem.num_nets();
    if (steps > kMostSteps) break;
    if (const auto filled = fill(problem, clump_by_nets(problem, dearest))) offer(*filled);
  }
  return best;
}

// By how much accelerators' own times and slownesses are shifted so that the fastest has about 1.
int slowness_shift(const std::vector<double>& slowness) {
  if (slowness.empty()) return 0;
  const double least = *std::min_element(slowness.begin(), slowness.end());
  return least > 0 && std::isfinite(least) ? -std::ilogb(least) : 0;
}

void scale_slowness(std::vector<double>& slowness, int shift) {
  constexpr double kMostTimesSlower = 0x1p60;  // beyond, a device is of no use
  for (double& each : slowness) each = std::min(std::ldexp(each, shift), kMostTimesSlower);
}

// LoadNode or Unit.
template <class Placed>
void scale_times(Placed& placed, const CostScale& scale, int shift) {
  const double there = scale.to_scale(std::ldexp(placed.accelerator_time, -shift));
  const double on_cpu = scale.to_scale(placed.cpu_time);
  placed.accelerator_time = placed.on_accelerator ? there : on_cpu;
  const bool bounded = std::isfinite(scale.most);
  placed.cpu_time = placed.on_cpu || !bounded ? on_cpu : scale.to_scale(scale.most);
}

}  // namespace

double sum_of_costs(const Instance& problem) {
  double slowest = 1;
  for (const double slowness : problem.slowness) slowest = std::max(slowest, slowness);
  double sum = 0;
  for (UnitId u{0}; u < problem.num_units(); ++u) {
    const Unit unit = problem.unit(u);
    const double there = unit.on_accelerator ? unit.accelerator_time * slowest : 0;
    sum += std::max(there, unit.on_cpu && problem.has_cpu() ? unit.cpu_time : 0);
  }
  for (const double cost : problem.cost) sum += cost;
  return sum;
}

double CostScale::to_scale(double cost) const { return std::ldexp(std::min(cost, most), shift); }
double CostScale::from_scale(double value) const { return std::ldexp(value, -shift); }

CostScale find_cost_scale(const Instance& problem) {
  // Room above the ceiling, so that what memory forces upon a split still counts for what it is.
  constexpr double kRoom = 0x1p16;
  constexpr int kMostShift = 1000;
  CostScale out;
  if (problem.num_units() == 0 || problem.num_devices == 0) return out;
  out.ceiling = best_of_simple_splits(problem);
  if (!std::isfinite(out.ceiling)) {
    out.ceiling = std::min(sum_of_costs(problem), std::numeric_limits<double>::max());
  }
  if (!(out.ceiling > 0)) return out;
  out.most = out.ceiling * kRoom;
  out.shift = std::clamp(-std::ilogb(out.ceiling), -kMostShift, kMostShift);
  return out;
}

LoadProblem scale_costs(const LoadProblem& problem, const CostScale& scale) {
  LoadProblem out = problem;
  const int shift = slowness_shift(problem.slowness);
  scale_slowness(out.slowness, shift);
  for (LoadNode& node : out.nodes) {
    scale_times(node, scale, shift);
    node.transfer = scale.to_scale(node.transfer);
  }
  return out;
}

Instance scale_costs(const Instance& problem, const CostScale& scale) {
  Instance out = problem;
  const int shift = slowness_shift(problem.slowness);
  scale_slowness(out.slowness, shift);
  for (UnitId t{0}; t < out.num_units(); ++t) {
    Unit unit = problem.unit(t);
    scale_times(unit, scale, shift);
    out.accelerator_time[t] = unit.accelerator_time;
    out.cpu_time[t] = unit.cpu_time;
  }
  for (double& cost : out.cost) cost = scale.to_scale(cost);
  return out;
}

}  // namespace kerf::place
