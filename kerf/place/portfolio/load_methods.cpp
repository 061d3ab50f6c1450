// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/portfolio/load_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kerf/base/cpu_seconds.h"
#include "kerf/base/error.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/bound/published_bounds.h"
#include "kerf/place/lower_bound.h"
#include "kerf/place/lower_load.h"
#include "kerf/place/pack/cost_scale.h"
#include "kerf/place/portfolio/split_driver.h"
#include "kerf/place/refine/latency_search.h"

namespace kerf::place {
namespace {

[[noreturn]] void refuse(const std::string& found, const std::string& expected) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[partition.plan_load] {}; expected {}", found, expected));
}

// No more accelerators than there are units for.
LoadProblem with_useful_accelerators(LoadProblem problem) {
  const auto nodes = static_cast<int>(std::min<std::size_t>(problem.nodes.size(), 1U << 20));
  if (!problem.slowness.empty() || !problem.memories.empty()) return problem;
  problem.num_accelerators = std::min(problem.num_accelerators, std::max(nodes, 1));
  return problem;
}

// From device[unit] of the problem that was searched to device[node] of the one that was asked.
std::vector<SlotId> place_nodes(const LoadProblem& problem, const LoweredLoad& searched,
                                std::span<const SlotId> device) {
  std::vector<SlotId> out = searched.to_nodes(device);
  std::replace(out.begin(), out.end(), searched.instance.cpu, problem.cpu());
  return out;
}

// A latency that simple splits have, and what follows for the costs.
CostScale latency_scale(const LoadProblem& problem, const LoweredLoad& lowered, bool serial) {
  const Instance& instance = lowered.instance;
  CostScale scale = find_cost_scale(instance);
  double least = std::numeric_limits<double>::infinity();
  for (const SlotId device : {SlotId{0}, instance.cpu}) {
    const Split all(instance.num_units(), device);
    if (device >= instance.num_devices || !find_loads(instance, all).fits) continue;
    least = std::min(least, find_latency(problem, lowered.to_nodes(all), serial));
  }
  // A latency is no shorter than the ceiling of loads allows, and may be longer.
  if (std::isfinite(least) && least > scale.ceiling) scale.most *= least / scale.ceiling;
  return scale;
}

LoadPlan describe(const LoadProblem& problem, const LoadRequest& request,
                  std::vector<SlotId> device, double value, const LowerBound& bound) {
  LoadPlan out;
  out.method = request.method;
  out.objective = request.objective;
  out.contiguous = is_contiguous(problem, device);
  out.device = std::move(device);
  out.value = value;
  check_bound(bound, value);
  out.lower_bound = bound.value;
  out.bound_name = bound.name;
  out.bound_argument = bound.argument;
  out.seed = request.options.seed;
  return out;
}

std::optional<LoadPlan> plan_throughput(const LoadProblem& problem, const LoadRequest& request,
                                        const SplitMethod& method) {
  const double start = cpu_seconds();
  const LoweredLoad searched = lower_load(with_useful_accelerators(with_one_cpu(problem)));
  const DriverProblem model{searched.instance, searched.instance, problem.num_cpus < 2};
  const auto on_problem = [&](std::span<const SlotId> device) {
    return place_nodes(problem, searched, device);
  };
  SplitDriver driver(model, request.options, [&](std::span<const SlotId> device) {
    const Loads loads = model.exact ? find_loads(searched.instance, device)
                                    : find_loads(problem, on_problem(device));
    // A family may put what only the CPU can run elsewhere than the rest of its stage.
    const bool allowed = !request.contiguous || is_contiguous(problem, on_problem(device));
    return Verdict{loads.fits && allowed, loads.busiest, 0};
  });
  driver.run(method, request.contiguous);
  if (driver.best().device.empty()) return std::nullopt;
  const std::vector<SlotId> device = on_problem(driver.best().device);
  const Loads loads = find_loads(problem, device);
  KERF_CHECK(loads.fits, "the split exceeds an accelerator's memory");
  LoadPlan out = describe(problem, request, device, loads.busiest, driver.bound());
  out.truncated = driver.truncated();
  out.cpu_seconds = cpu_seconds() - start;
  return out;
}

std::optional<LoadPlan> plan_latency(const LoadProblem& problem, const LoadRequest& request) {
  const double start = cpu_seconds();
  const LowerBound bound = latency_bound(problem);
  LoadOptions options = request.options;
  const LoadProblem searched = with_useful_accelerators(problem);
  const LoweredLoad lowered = lower_load(searched);
  const CostScale scale = latency_scale(searched, lowered, request.serial);
  options.good_enough = std::ldexp(bound.value, scale.shift);
  const LoadAnswer answer = latency_search(scale_costs(searched, scale), options, request.serial);
  if (answer.device.empty()) return std::nullopt;
  const std::vector<SlotId> device = place_nodes(problem, lowered, answer.device);
  const double value = find_latency(problem, device, request.serial);
  LoadPlan out = describe(problem, request, device, value, bound);
  out.truncated = answer.truncated;
  out.cpu_seconds = cpu_seconds() - start;
  return out;
}

}  // namespace

std::optional<LoadPlan> plan_load(const LoadProblem& problem, const LoadRequest& request,
                                  const SplitMethod& method) {
  const bool is_latency = request.objective == Objective::latency;
  if (request.contiguous && (is_latency || method.shape == Shape::any)) {
    refuse(fmt::format("only contiguous splits for {} '{}'", is_latency ? "objective" : "method",
                       is_latency ? "latency" : request.method),
           "objective throughput and a method of chain, ideals, exact, auto, multilevel, acyclic, "
           "pipedream (omit --contiguous, or change the other)");
  }
  if (request.serial && !is_latency) {
    refuse("--serial for an objective other than latency", "--objective latency, or no --serial");
  }
  if (!(request.options.time_budget > 0) || request.options.time_budget > 1e6) {
    refuse(fmt::format("a time budget of {} s", request.options.time_budget),
           "more than 0 and at most a million");
  }
  const DeadlineScope deadline(request.options.safety_stop());
  std::optional<LoadPlan> plan;
  switch (request.objective) {
    case Objective::throughput: plan = plan_throughput(problem, request, method); break;
    case Objective::latency: plan = plan_latency(problem, request); break;
    default:
      refuse(fmt::format("the objective {} for a published problem", to_string(request.objective)),
             "throughput or latency");
  }
  if (plan) plan->timed_out = deadline.timed_out();
  return plan;
}

}  // namespace kerf::place
