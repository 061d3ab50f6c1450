// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/split/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kerf/partition/baseline/baseline.h"
#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/chain/chain.h"
#include "kerf/partition/exact/enumerate.h"
#include "kerf/partition/finish.h"
#include "kerf/partition/fx/methods.h"
#include "kerf/partition/mincut/load_bounds.h"
#include "kerf/partition/split/polish.h"
#include "kerf/partition/split/traced_search.h"

namespace kerf::partition {
namespace {

// Of the problem's objective, from the best bound on the busiest device.
LowerBound objective_bound(const Problem& problem, const LowerBound& busiest) {
  LowerBound best = best_lower_bound(problem);
  if (problem.objective == Objective::throughput) return busiest;
  if (problem.objective == Objective::step && busiest.value * problem.n_microbatches > best.value) {
    best = {busiest.name, busiest.value * problem.n_microbatches,
            fmt::format("{} micro-batches of which each keeps a device busy: {}",
                        problem.n_microbatches, busiest.argument)};
  }
  return best;
}

// Are there so few splits that all can be looked at?
bool is_small(const Problem& problem, const SplitModel& model) {
  constexpr double kFew = 50'000;
  const auto devices = static_cast<double>(problem.cluster.num_devices());
  return std::pow(devices, static_cast<double>(model.units.size())) <= kFew;
}

Outcome<Plan, Infeasible> search_throughput(const Problem& problem, const Options& options,
                                            std::string_view method) {
  TracedSearch search(problem, options, options.time_budget);
  search.offer(chain(problem, options));
  search.run(method);
  // Memory and links that the searches do not know to the last byte leave something to gain.
  if (method != "ideals" && !search.met()) {
    polish(problem, search.model(), search.best(), {options.time_budget * 0.1, problem.seed});
  }
  if (method == "auto" && !search.met() && is_small(problem, search.model())) {
    const Enumeration all = enumerate_splits(problem, search.model(), search.best());
    if (all.complete && search.best().plan()) {
      const LowerBound bound = tried_all(*search.best().plan());
      return std::move(search.best()).answer("auto", bound, false);
    }
  }
  return std::move(search.best())
      .answer(std::string(method), search.busiest_bound(), search.truncated());
}

// The least limit at which `chain` still finds a split, and that split.
void halve_memory(const Problem& problem, const Options& options, BestPlan& best) {
  if (!best.plan()) return;
  constexpr int kRounds = 12;
  double low = best_lower_bound(problem).value;
  double high = best.plan()->objective_value();
  for (int round = 0; round < kRounds && low < high * 0.999; ++round) {
    const double middle = (low + high) / 2;
    Problem tighter = problem;
    for (Device& device : tighter.cluster.devices) {
      const Bytes limit{static_cast<std::int64_t>(middle)};
      device.memory = device.memory_limited ? std::min(device.memory, limit) : limit;
      device.memory_limited = true;
    }
    const auto outcome = chain(tighter, options);
    if (!outcome) {
      low = middle;
      continue;
    }
    auto found = replace_problem(*outcome, problem);
    best.offer(found);
    high = middle;
  }
}

Outcome<Plan, Infeasible> search_objective(const Problem& problem, const Options& options,
                                           std::string_view method) {
  constexpr double kSearchShare = 0.3;
  const bool wide = method == "auto";
  TracedSearch search(problem, options, options.time_budget * kSearchShare);
  BestPlan& best = search.best();
  best.offer(single(problem, options));
  search.offer(chain(problem, options));
  if (problem.objective == Objective::memory) halve_memory(problem, options, best);
  constexpr std::size_t kManyNodes = 5'000;  // beyond, these take longer than the search
  if (wide && problem.graph.num_nodes() <= kManyNodes) {
    best.offer(cost_aware(problem, options));
    best.offer(kl(problem, options));
  }
  if (wide) search.run("auto");
  const bool finished = polish(problem, search.model(), best,
                               {options.time_budget * (1 - kSearchShare), problem.seed});
  if (wide && is_small(problem, search.model())) {
    enumerate_splits(problem, search.model(), best);
  }
  return std::move(best).answer(std::string(method),
                                objective_bound(problem, search.busiest_bound()), !finished);
}

}  // namespace

Outcome<Plan, Infeasible> ideals(const Problem& problem, const Options& options) {
  return search_throughput(problem, options, "ideals");
}

Outcome<Plan, Infeasible> refine_plan(const Problem& problem, const Options& options) {
  return problem.objective == Objective::throughput ? search_throughput(problem, options, "refine")
                                                    : search_objective(problem, options, "refine");
}

Outcome<Plan, Infeasible> auto_plan(const Problem& problem, const Options& options) {
  return problem.objective == Objective::throughput ? search_throughput(problem, options, "auto")
                                                    : search_objective(problem, options, "auto");
}

std::vector<LowerBound> strong_bounds(const Problem& problem, double seconds) {
  std::vector<LowerBound> bounds = lower_bounds(problem);
  if (problem.objective != Objective::throughput) return bounds;
  const UnitProblem units = to_units(make_split_model(problem, ModelUse::bound).load);
  for (const LoadBound& bound : find_load_bounds(units, seconds)) {
    const bool known = bound.name == "work" || bound.name == "unit" || bound.name == "memory";
    if (!known) bounds.push_back({bound.name, bound.value, bound.argument});
  }
  return bounds;
}

}  // namespace kerf::partition
