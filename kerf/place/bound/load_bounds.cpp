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
#include <numeric>

#include "kerf/base/infinity.h"
#include "kerf/place/bound/cut_bounds.h"
#include "kerf/place/mincut/prove.h"
#include "kerf/place/pack/cost_scale.h"

namespace kerf::place {
namespace {

// Where it can be: infinite where it cannot.
struct TaskTimes {
  double accelerator = 0;  // of slowness 1
  double cpu = 0;

  // Time that the accelerators save for each unit of time that the CPU spends.
  double gain() const { return cpu > 0 ? accelerator / cpu : kInfinity; }
};

std::vector<TaskTimes> times_of(const Instance& problem) {
  double largest = -1;
  for (std::uint32_t d = 0; d < problem.cpu; ++d) {
    largest = std::max(largest, problem.memory[d]);
  }
  std::vector<TaskTimes> times;
  times.reserve(problem.num_tasks());
  for (std::uint32_t t = 0; t < problem.num_tasks(); ++t) {
    const Task task = problem.task(t);
    const bool there = task.on_accelerator && task.bytes <= largest;
    const bool on_cpu =
        problem.has_cpu() && task.on_cpu && task.bytes <= problem.memory[problem.cpu];
    times.push_back(
        {there ? task.accelerator_time : kInfinity, on_cpu ? task.cpu_time : kInfinity});
  }
  return times;
}

// Least limit of a split of the tasks' time without loss: a linear program over one ratio. Tasks
// are taken as divisible. Infinite when one has no device.
double divisible_limit(const std::vector<TaskTimes>& tasks, double accelerators) {
  double forced = 0;  // on the CPU
  double whole = 0;   // on the accelerators, come what may
  std::vector<TaskTimes> free;
  for (const TaskTimes& task : tasks) {
    const bool nowhere = !std::isfinite(task.cpu);
    if (accelerators == 0 || !std::isfinite(task.accelerator)) {
      if (nowhere) return kInfinity;
      forced += task.cpu;
    } else if (nowhere) {
      whole += task.accelerator;
    } else {
      free.push_back(task);
    }
  }
  if (accelerators == 0) return forced;
  std::stable_sort(free.begin(), free.end(),
                   [](const TaskTimes& a, const TaskTimes& b) { return a.gain() > b.gain(); });
  // rest[i]: on the accelerators when the first i are moved over. Added up from the end: taking
  // large times off a sum would leave nothing of the small ones.
  std::vector<double> rest(free.size() + 1, whole);
  for (std::size_t i = free.size(); i-- > 0;) rest[i] = rest[i + 1] + free[i].accelerator;
  // Move the best task over until the CPU is the busier: the crossing is the answer.
  for (std::size_t i = 0; i < free.size(); ++i) {
    const TaskTimes& task = free[i];
    if (forced + task.cpu >= rest[i + 1] / accelerators) {
      const double slope = task.accelerator / accelerators + task.cpu;
      const double part = slope > 0 ? (rest[i] / accelerators - forced) / slope : 0;
      return forced + std::clamp(part, 0.0, 1.0) * task.cpu;
    }
    forced += task.cpu;
  }
  return std::max(forced, whole / accelerators);
}

// Without nets, and of many tasks the largest alone: they decide whether whole tasks pack, the rest
// is but sand.
Instance without_communication(const Instance& problem) {
  constexpr std::size_t kMostTasks = 500;
  std::vector<std::uint32_t> tasks(problem.num_tasks());
  std::iota(tasks.begin(), tasks.end(), 0U);
  if (tasks.size() > kMostTasks) {
    std::nth_element(tasks.begin(), tasks.begin() + kMostTasks, tasks.end(),
                     [&](std::uint32_t a, std::uint32_t b) {
                       const auto size = [&](std::uint32_t t) {
                         return std::min(problem.accelerator_time[t], problem.cpu_time[t]);
                       };
                       return size(a) > size(b);
                     });
    tasks.resize(kMostTasks);
  }
  InstanceBuilder builder(problem);
  for (const std::uint32_t t : tasks) builder.add_task(problem.task(t));
  return std::move(builder).build_unordered();
}

}  // namespace

LowerBound work_bound(const Instance& problem) {
  double speed = 0;
  for (std::uint32_t d = 0; d < problem.cpu; ++d) speed += 1 / problem.slowness[d];
  return {"work", shaved(divisible_limit(times_of(problem), speed), problem.num_tasks()),
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
  return {"unit", shaved(most, 1), "the largest unit takes this long on its fastest device"};
}

LowerBound packing_bound(const Instance& problem, const LowerBound& known, double seconds) {
  // What is not refuted soon is not refuted at all: the search with nets is asked next.
  constexpr std::int64_t kMostWork = 1'500'000;
  ProofOptions options;
  options.work_budget = std::min(SearchBudget::of(seconds).work, kMostWork);
  options.time_budget = seconds;
  options.gap = 1e-7;
  const LowerBound found = prove(without_communication(problem), {}, known, options).bound;
  const double value = found.value > known.value ? found.value : work_bound(problem).value;
  return {"packing", value,
          "no packing of whole units, even without communication, keeps every device below this"};
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
