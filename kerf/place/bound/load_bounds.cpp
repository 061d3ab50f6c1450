// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Bounds on the busiest device from compute alone: a linear program, the largest unit, bin packing.
// All are valid for any split; none is claimed tight.
#include "kerf/place/bound/load_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kerf/base/infinity.h"
#include "kerf/place/bound/cut_bounds.h"
#include "kerf/place/cost_scale.h"
#include "kerf/place/pack/packing.h"

namespace kerf::place {
namespace {

// Times on an accelerator of slowness 1, where some accelerator can hold the unit.
std::vector<PackItem> to_items(const Instance& problem) {
  double largest = -1;
  for (std::uint32_t d = 0; d < problem.cpu; ++d) {
    largest = std::max(largest, problem.memory[d]);
  }
  std::vector<PackItem> items;
  items.reserve(problem.num_tasks());
  for (std::uint32_t u = 0; u < problem.num_tasks(); ++u) {
    const Task unit = problem.task(u);
    const bool there = unit.on_accelerator && unit.bytes <= largest;
    const bool on_cpu =
        problem.has_cpu() && unit.on_cpu && unit.bytes <= problem.memory[problem.cpu];
    items.push_back(
        {there ? unit.accelerator_time : kInfinity, on_cpu ? unit.cpu_time : kInfinity});
  }
  return items;
}

// The largest decide whether whole units pack; past some thousands the rest is but sand.
void keep_largest(std::vector<PackItem>& items) {
  constexpr std::size_t kMostItems = 2000;
  if (items.size() <= kMostItems) return;
  const auto size = [](const PackItem& item) { return std::min(item.time, item.cpu_time); };
  std::nth_element(items.begin(), items.begin() + kMostItems, items.end(),
                   [&](const PackItem& a, const PackItem& b) { return size(a) > size(b); });
  items.resize(kMostItems);
}

}  // namespace

LowerBound work_bound(const Instance& problem) {
  double speed = 0;
  for (std::uint32_t d = 0; d < problem.cpu; ++d) speed += 1 / problem.slowness[d];
  return {"work", shaved(divisible_limit(to_items(problem), speed), problem.num_tasks()),
          "the compute of all units, spread without loss over all devices, takes this long"};
}

LowerBound unit_bound(const Instance& problem) {
  double most = 0;
  for (std::uint32_t u = 0; u < problem.num_tasks(); ++u) {
    double least = kInfinity;
    for (std::uint32_t d = 0; d < problem.num_devices; ++d) {
      const bool holds = problem.runs_on(u, d) && problem.bytes[u] <= problem.memory[d];
      if (holds) least = std::min(least, problem.time(u, d));
    }
    most = std::max(most, least);
  }
  return {"unit", shaved(most, 1),
          "the largest unit takes this long on the device that suits it best"};
}

LowerBound packing_bound(const Instance& problem, SearchBudget budget, std::int64_t placements) {
  const int bins = static_cast<int>(problem.cpu);
  double low = std::max(work_bound(problem).value, unit_bound(problem).value);
  std::vector<PackItem> items = to_items(problem);
  const auto& slowness = problem.slowness;
  const double fastest = bins > 0 ? *std::min_element(slowness.begin(), slowness.end()) : 1;
  for (PackItem& item : items) item.time *= fastest;
  keep_largest(items);
  // A placement looks at all items and bins.
  const auto looks = static_cast<std::int64_t>(items.size()) + 8 * std::int64_t{bins} + 64;
  placements = std::min(placements, budget.work / looks);
  double high = low * 2;
  bool packed = false;
  // From above while packings improve: the last refusal is then exact.
  for (std::int64_t share = placements / 2; share > 0 && std::isfinite(low) && high > low;) {
    const PackResult result = pack_below(items, bins, high, share, budget);
    if (result.answer == PackAnswer::fits) {
      high = result.load;
      packed = true;
      continue;
    }
    if (result.answer == PackAnswer::refuted) low = std::max(low, shaved(high, items.size()));
    if (packed || result.answer == PackAnswer::unknown) break;
    high *= 2;
  }
  // Below what the budget could settle, halve the gap with what is left.
  std::int64_t rest = placements / 2;
  while (std::isfinite(low) && rest > 0 && high - low > 1e-6 * high && !budget.timed_out) {
    const double middle = (low + high) / 2;
    std::int64_t share = std::min(rest, std::max<std::int64_t>(placements / 10, 1));
    rest -= share;
    const PackResult result = pack_below(items, bins, middle, share, budget);
    (result.answer == PackAnswer::refuted ? low : high) = middle;
  }
  return {"packing", shaved(low, items.size()),
          "no packing of whole units, communication left out, keeps every device below this"};
}

std::vector<LowerBound> find_load_bounds(const Instance& unscaled, double time_budget) {
  const CostScale scale = find_cost_scale(unscaled);
  const Instance problem = scale_costs(unscaled, scale);
  const SearchBudget all = SearchBudget::of(time_budget);
  SearchBudget packing = SearchBudget::of(time_budget / 4);
  std::vector<LowerBound> bounds = {work_bound(problem), unit_bound(problem)};
  bounds.push_back(packing_bound(problem, packing));
  bounds.push_back(memory_bound(problem));
  CutBounds cuts(problem, all);
  bounds.push_back(cuts.cut());
  bounds.push_back(cuts.pair());
  for (LowerBound& bound : bounds) bound.value = scale.from_scale(bound.value);
  return bounds;
}

}  // namespace kerf::place
