// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/search/exact.h"

#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/search/enumerate.h"
#include "kerf/partition/search/methods.h"
#include "kerf/partition/search/traced_search.h"
#include "kerf/place/portfolio/split_methods.h"

namespace kerf::partition {

Outcome<Plan, Infeasible> exact(const Problem& problem, const Options& options) {
  constexpr double kSearchShare = 0.5;
  const bool by_cuts = problem.objective == Objective::throughput;
  Options half = options;
  half.time_budget *= kSearchShare;
  TracedSearch search(problem, options, {.seconds = half.time_budget});
  BestPlan& best = search.best();
  search.offer(by_cuts ? start_plan(problem, options) : refine_plan(problem, half));
  if (by_cuts && !best.plan()) search.offer(refine_plan(problem, half));  // memory is short
  if (by_cuts) {
    search.run(place::exact_split());
    if (search.met()) return std::move(best).answer("exact", search.busiest_bound(), false);
  }
  const auto bound = [&] { return by_cuts ? search.busiest_bound() : best_lower_bound(problem); };
  const SplitModel model =
      search.is_restricted() ? make_split_model(problem, ModelUse::search) : search.model();
  if (!is_enumerable(model)) {
    return std::move(best).answer("exact", bound(), search.truncated());
  }
  EnumerateLimits limits;
  if (options.work_limit > 0) limits.work = options.work_limit;
  limits.seconds = half.time_budget;
  const bool complete = enumerate_splits(problem, model, best, limits);
  // Loads do not depend on how a split's units are put into stages, other figures do.
  const bool all_seen = by_cuts && complete && best.plan().has_value();
  const LowerBound proved = all_seen ? tried_all(*best.plan()) : bound();
  auto outcome = std::move(best).answer("exact", proved, !complete);
  if (outcome || !complete) return outcome;
  Infeasible reason = outcome.reason();
  reason.caveat.clear();  // all splits were seen
  return reason;
}

}  // namespace kerf::partition
