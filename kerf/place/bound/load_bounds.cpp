// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Bounds on the busiest device from compute alone: a linear program, the largest unit, bin packing
// (the exact search of mincut/prove.h without nets). All are valid for any split; none is claimed
// tight.
#include "kerf/place/bound/load_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>

#include "kerf/base/count_up.h"
#include "kerf/base/infinity.h"
#include "kerf/place/bound/cut_bounds.h"
#include "kerf/place/mincut/prove.h"
#include "kerf/place/pack/bins.h"
#include "kerf/place/pack/cost_scale.h"

namespace kerf::place {
namespace {

// Where it can be: infinite where it cannot.
struct UnitTimes {
  double accelerator = 0;  // of slowness 1
  double cpu = 0;

  // Time that the accelerators save for each unit of time that the CPU spends.
  double gain() const { return cpu > 0 ? accelerator / cpu : kInfinity; }
};

std::vector<UnitTimes> times_of(const Instance& problem) {
  double largest = -1;
  for (SlotId d{0}; d < problem.cpu; ++d) {
    largest = std::max(largest, problem.memory[d]);
  }
  std::vector<UnitTimes> times;
  times.reserve(problem.num_units());
  for (UnitId t{0}; t < problem.num_units(); ++t) {
    const Unit unit = problem.unit(t);
    const bool there = unit.on_accelerator && unit.bytes <= largest;
    const bool on_cpu =
        problem.has_cpu() && unit.on_cpu && unit.bytes <= problem.memory[problem.cpu];
    times.push_back(
        {there ? unit.accelerator_time : kInfinity, on_cpu ? unit.cpu_time : kInfinity});
  }
  return times;
}

// Least limit of a split of the units' time without loss: a linear program over one ratio. Units
// are taken as divisible. Infinite when one has no device.
double divisible_limit(const std::vector<UnitTimes>& units, double accelerators) {
  double forced = 0;  // on the CPU
  double whole = 0;   // on the accelerators, come what may
  std::vector<UnitTimes> free;
  for (const UnitTimes& unit : units) {
    const bool nowhere = !std::isfinite(unit.cpu);
    if (accelerators == 0 || !std::isfinite(unit.accelerator)) {
      if (nowhere) return kInfinity;
      forced += unit.cpu;
    } else if (nowhere) {
      whole += unit.accelerator;
    } else {
      free.push_back(unit);
    }
  }
  if (accelerators == 0) return forced;
  std::stable_sort(free.begin(), free.end(),
                   [](const UnitTimes& a, const UnitTimes& b) { return a.gain() > b.gain(); });
  // rest[i]: on the accelerators when the first i are moved over. Added up from the end: taking
  // large times off a sum would leave nothing of the small ones.
  std::vector<double> rest(free.size() + 1, whole);
  for (std::size_t i = free.size(); i-- > 0;) rest[i] = rest[i + 1] + free[i].accelerator;
  // Move the best unit over until the CPU is the busier: the crossing is the answer.
  for (std::size_t i = 0; i < free.size(); ++i) {
    const UnitTimes& unit = free[i];
    if (forced + unit.cpu >= rest[i + 1] / accelerators) {
      const double slope = unit.accelerator / accelerators + unit.cpu;
      const double part = slope > 0 ? (rest[i] / accelerators - forced) / slope : 0;
      return forced + std::clamp(part, 0.0, 1.0) * unit.cpu;
    }
    forced += unit.cpu;
  }
  return std::max(forced, whole / accelerators);
}

// Without nets, and of many units the largest alone: they decide whether whole units pack, the rest
// is but sand.
Instance without_communication(const Instance& problem) {
  constexpr std::size_t kMostUnits = 500;
  std::vector<UnitId> units = count_up<UnitId>(problem.num_units());
  if (units.size() > kMostUnits) {
    std::nth_element(units.begin(), units.begin() + kMostUnits, units.end(),
                     [&](UnitId a, UnitId b) {
                       const auto size = [&](UnitId t) {
                         return std::min(problem.accelerator_time[t], problem.cpu_time[t]);
                       };
                       return size(a) > size(b);
                     });
    units.resize(kMostUnits);
  }
  InstanceBuilder builder(problem);
  for (const UnitId t : units) builder.add_unit(problem.unit(t));
  return std::move(builder).build_unordered();
}

// What the busiest device takes when units go one by one, the longest first, to the device that is
// done with them first: no packing bound is above that. Infinite where one finds no room.
double plain_packing(const Instance& units) {
  Order longest_first = count_up<UnitId>(units.num_units());
  std::stable_sort(longest_first.begin(), longest_first.end(), [&](UnitId a, UnitId b) {
    return units.accelerator_time[a] > units.accelerator_time[b];
  });
  Bins bins(units);
  for (const UnitId& unit : longest_first) {
    if (!bins.put_where_done_first({&unit, 1})) return kInfinity;
  }
  return find_loads(units, bins.take_devices()).busiest;
}

// Of k x devices + 1 units some device holds k + 1: at least the shortest of these, each on its
// fastest device. For any number of devices, which the search has not.
double pigeonhole_bound(const Instance& problem) {
  if (problem.num_devices == 0) return 0;
  const double fastest = problem.slowness.empty() ? 1 : *std::ranges::min_element(problem.slowness);
  std::vector<double> longest_first;
  for (const UnitTimes& unit : times_of(problem)) {
    longest_first.push_back(std::min(unit.accelerator * fastest, unit.cpu));
  }
  std::sort(longest_first.begin(), longest_first.end(), std::greater<>());
  double most = 0;
  for (std::size_t k = 1; k * problem.num_devices < longest_first.size(); ++k) {
    const auto end =
        longest_first.begin() + static_cast<std::ptrdiff_t>(k * problem.num_devices) + 1;
    most = std::max(most, std::accumulate(end - static_cast<std::ptrdiff_t>(k) - 1, end, 0.0));
  }
  return shaved(most, problem.num_units());
}

}  // namespace

LowerBound work_bound(const Instance& problem) {
  double speed = 0;
  for (SlotId d{0}; d < problem.cpu; ++d) speed += 1 / problem.slowness[d];
  return {"work", shaved(divisible_limit(times_of(problem), speed), problem.num_units()),
          "the compute of all units, spread without loss over all devices, takes this long"};
}

LowerBound unit_bound(const Instance& problem) {
  double most = 0;
  for (UnitId u{0}; u < problem.num_units(); ++u) {
    double least = kInfinity;
    for (SlotId d{0}; d < problem.num_devices; ++d) {
      const bool holds = problem.runs_on(u, d) && problem.bytes[u] <= problem.memory[d];
      if (holds) least = std::min(least, problem.time(u, d));
    }
    most = std::max(most, least);
  }
  return {"unit", shaved(most, 1), "the largest unit takes this long on its fastest device"};
}

LowerBound packing_bound(const Instance& problem, const LowerBound& known, double seconds) {
  LowerBound out{
      "packing", std::max(work_bound(problem).value, pigeonhole_bound(problem)),
      "no packing of whole units, even without communication, keeps every device below this"};
  const Instance units = without_communication(problem);
  // So little to gain is not worth a search, unless it is a short one.
  constexpr double kLittle = 5e-3;
  constexpr std::uint32_t kFewUnits = 64;
  if (units.num_units() > kFewUnits && plain_packing(units) < known.value * (1 + kLittle)) {
    return out;
  }
  // What is not refuted soon is not refuted at all: the search with nets is asked next.
  constexpr std::int64_t kMostWork = 600'000;
  ProofOptions options;
  options.work_budget = std::min(SearchBudget::of(seconds).work, kMostWork);
  options.time_budget = seconds;
  options.gap = 1e-7;
  const LowerBound found = prove(units, {}, known, options).bound;
  if (found.value > known.value) out.value = std::max(out.value, found.value);
  return out;
}

std::vector<LowerBound> find_load_bounds(const Instance& unscaled, double time_budget) {
  const CostScale scale = find_cost_scale(unscaled);
  const Instance problem = scale_costs(unscaled, scale);
  const SearchBudget all = SearchBudget::of(time_budget);
  std::vector<LowerBound> bounds = {
      work_bound(problem), unit_bound(problem), {}, memory_bound(problem)};
  CutBounds cuts(problem, all);
  bounds.push_back(cuts.cut());
  bounds.push_back(cuts.pair());
  bounds[2] = packing_bound(problem, tightest(bounds), time_budget / 4);  // from the others' on
  for (LowerBound& bound : bounds) bound.value = scale.from_scale(bound.value);
  return bounds;
}

}  // namespace kerf::place
