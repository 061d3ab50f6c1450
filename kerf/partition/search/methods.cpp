// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/search/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "kerf/base/stop_clock.h"
#include "kerf/partition/baseline/baseline.h"
#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/chain/chain.h"
#include "kerf/partition/fx/methods.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/search/enumerate.h"
#include "kerf/partition/search/polish.h"
#include "kerf/partition/search/traced_search.h"
#include "kerf/place/portfolio/split_methods.h"

namespace kerf::partition {
namespace {

// There is no time left for what is not a search. Small graphs need next to none.
bool is_over(const Problem& problem) {
  constexpr std::size_t kSmall = 1'000;  // nodes
  return problem.graph.num_nodes() > kSmall && deadline_passed();
}

// Of the problem's objective, from the best bound on the busiest device.
LowerBound objective_bound(const Problem& problem, const LowerBound& busiest) {
  LowerBound best = best_lower_bound(problem);
  if (problem.objective == Objective::throughput) return busiest;
  if (problem.objective == Objective::step && busiest.value * problem.n_microbatches > best.value) {
    best = {busiest.name, busiest.value * problem.n_microbatches,
            fmt::format("{} micro-batches, each of which keeps a device busy: {}",
                        problem.n_microbatches, busiest.argument)};
  }
  return best;
}

// The least limit at which `chain` still finds a split, and that split.
void halve_memory(const Problem& problem, const Options& options, const StopClock& clock,
                  BestPlan& best) {
  if (!best.plan()) return;
  constexpr int kRounds = 12;
  Options quick = options;
  quick.work_limit = 500;
  double low = best_lower_bound(problem).value;
  double high = best.plan()->objective_value();
  for (int round = 0; round < kRounds && low < high * 0.999 && !clock.struck(); ++round) {
    const double middle = (low + high) / 2;
    Problem tighter = problem;
    for (Device& device : tighter.cluster.devices) {
      const Bytes limit{static_cast<std::int64_t>(middle)};
      device.memory = device.memory_limited ? std::min(device.memory, limit) : limit;
      device.memory_limited = true;
    }
    const auto outcome = chain_in_order(tighter, quick);
    if (!outcome) {
      low = middle;
      continue;
    }
    best.offer(replace_problem(*outcome, problem));
    high = middle;
  }
}

// Where nothing was found that fits: the plan that needs least memory may.
void look_for_room(const Problem& problem, const SplitModel& model, const Options& options,
                   const StopClock& clock, BestPlan& best) {
  if (is_over(problem) && best.has_answer()) return;
  Problem roomy = problem;
  roomy.objective = Objective::memory;
  for (Device& device : roomy.cluster.devices) device.memory_limited = false;
  BestPlan smallest(best.mixed());
  smallest.offer(single(roomy, options));
  // Filled one after the other: blind to time, but what fits by a hair is often found so.
  if (!is_over(problem)) {
    if (const auto filled = size(problem, options)) best.offer(filled);
  }
  if (!is_over(problem)) smallest.offer(chain_in_order(roomy, options));
  halve_memory(roomy, options, clock, smallest);
  polish(roomy, model, smallest,
         {.seconds = options.time_budget * 0.2, .clock = clock.left(), .seed = problem.seed});
  if (smallest.plan()) best.offer(replace_problem(*smallest.plan(), problem));
}

// Few units: all splits, as far as a share of the budget goes. True: all of them were seen.
bool try_all(const Problem& problem, const TracedSearch& search, const Options& options,
             const StopClock& clock, BestPlan& best, bool& cut_short) {
  constexpr double kBranchesASecond = 400'000;
  if (!is_enumerable(search.model())) return false;
  const SplitModel model =
      search.is_restricted() ? make_split_model(problem, ModelUse::search) : search.model();
  if (!is_enumerable(model)) return false;
  EnumerateLimits limits;
  limits.work = static_cast<std::int64_t>(options.time_budget * kBranchesASecond);
  limits.seconds = clock.left();
  const bool complete = enumerate_splits(problem, model, best, limits);
  cut_short = cut_short || !complete;
  return complete && best.plan().has_value();
}

// A method's plan as if there were no memory limits, so that one can say what is missing.
Outcome<Plan, Infeasible> with_ample_memory(const Problem& problem, const Options& options,
                                            const place::SplitMethod& method,
                                            const SearchScope& scope) {
  Problem roomy = problem;
  for (Device& device : roomy.cluster.devices) device.memory_limited = false;
  TracedSearch search(roomy, options, scope);
  search.run(method);
  if (!search.best().plan()) return chain_in_order(problem, options);
  return replace_problem(*search.best().plan(), problem);
}

// The searches count what training keeps by an average over the devices; the engine by their places
// in the pipeline. So: search, see which device lacks how much, leave as much of it free, and
// search again.
void repair_memory(const Problem& problem, const Options& options, const place::SplitMethod& method,
                   SearchScope scope, const StopClock& clock, TracedSearch& search) {
  constexpr int kRounds = 6;
  constexpr double kSome = 1.1;  // units do not end where bytes do
  scope.seconds /= kRounds;
  scope.reserved.assign(problem.cluster.num_devices(), 0);
  BestPlan& best = search.best();
  std::optional<Infeasible> reason = best.closest();
  for (int round = 0; round < kRounds && reason && !best.plan() && !clock.struck(); ++round) {
    const int group = problem.cluster.device(reason->tightest).memory_group;
    for (const DeviceId device : problem.cluster.group(group)) {
      scope.reserved[device.index()] += static_cast<double>(reason->short_by.count) * kSome;
    }
    TracedSearch again(problem, options, scope);
    again.run(method);
    reason = again.best().closest();
    if (again.best().plan()) best.offer(Plan(*again.best().plan()));
  }
}

// What chain finds, others need not miss: its splits know the places of stages.
void offer_chain(const Problem& problem, const Options& options, std::string_view name,
                 BestPlan& best) {
  Outcome<Plan, Infeasible> chained = start_plan(problem, options);
  if (!chained) return best.offer(chained);
  chained->notes.push_back(fmt::format("{} found no split that fits; this one is chain's", name));
  best.offer(std::move(*chained));
}

// An edge cut's stages may have more time than they were allowed, where nothing else was found.
void note_imbalance(double imbalance, Plan& plan) {
  double speed = 0;
  Nanoseconds work;
  for (const Device& device : plan.cluster.devices) speed += device.speed;
  for (const Stage& stage : plan.stages) {
    work += stage.time * plan.cluster.device(stage.device).speed;
  }
  const double share = work.count / speed;
  double worst = 0;
  for (const Stage& stage : plan.stages) worst = std::max(worst, stage.time.count / share);
  if (worst <= (1 + imbalance) * (1 + 1e-9)) return;
  plan.notes.push_back(fmt::format(
      "a stage takes {:.3f} times its share of the time: no split within {:.3f} was found", worst,
      1 + imbalance));
}

// One of the methods that several searches go into.
struct Search {
  std::string name;
  const place::SplitMethod& split;
  bool wide = false;  // everything that may help: runs of nodes first, other methods, all splits
};

Outcome<Plan, Infeasible> search_throughput(const Problem& problem, const Options& options,
                                            const Search& method) {
  const StopClock clock(options.time_budget);
  const bool one_each = method.split.shape == place::Shape::contiguous;
  // What is not small is first searched in runs of nodes, which finds in little time what node by
  // node would take long.
  constexpr std::size_t kManyNodes = 4'000;
  constexpr double kCoarseShare = 0.4;
  SearchScope scope{.seconds = options.time_budget, .mixed = !one_each};
  std::optional<Plan> first;
  const std::size_t nodes = problem.graph.num_nodes();
  if (nodes > kManyNodes && nodes <= scope.most_nodes && method.wide) {
    scope.seconds *= kCoarseShare;
    TracedSearch coarse(problem, options, {.seconds = scope.seconds, .most_nodes = kManyNodes});
    coarse.run(method.split);
    first = coarse.best().plan();
    scope.seconds = options.time_budget - scope.seconds;
  }
  TracedSearch search(problem, options, scope);
  BestPlan& best = search.best();
  if (!search.is_coarse()) search.offer(start_plan(problem, options));
  if (first) search.offer(*std::move(first));
  if (!best.plan() && !search.is_coarse()) {
    // Memory is short. What fits at all is worth more to the searches than time.
    constexpr double kRoomShare = 0.3;
    Options short_options = options;
    short_options.time_budget *= kRoomShare;
    look_for_room(problem, search.model(), short_options, StopClock(short_options.time_budget),
                  best);
    if (best.plan()) search.offer(Plan(*best.plan()));
  }
  if (!is_over(problem) || !best.has_answer()) search.run(method.split);
  if (search.is_coarse() && !best.plan() && !(is_over(problem) && best.has_answer())) {
    search.offer(start_plan(problem, options));
  }
  bool cut_short = search.truncated();
  if (!best.plan()) look_for_room(problem, search.model(), options, clock, best);
  // Memory and links that the searches do not know to the last byte leave something to gain.
  if (!one_each && !search.met() && !search.is_coarse()) {
    cut_short |= !polish(
        problem, search.model(), best,
        {.seconds = options.time_budget * 0.1, .clock = clock.left(), .seed = problem.seed});
  }
  if (method.wide && !search.met() && try_all(problem, search, options, clock, best, cut_short)) {
    const LowerBound bound = tried_all(*best.plan());
    return std::move(best).answer(method.name, bound, false);
  }
  return std::move(best).answer(method.name, search.busiest_bound(), cut_short);
}

Outcome<Plan, Infeasible> search_objective(const Problem& problem, const Options& options,
                                           const Search& method) {
  constexpr double kSearchShare = 0.3;
  const StopClock clock(options.time_budget);
  TracedSearch search(problem, options, {.seconds = options.time_budget * kSearchShare});
  BestPlan& best = search.best();
  best.offer(single(problem, options));
  search.offer(start_plan(problem, options));
  if (problem.objective == Objective::memory) halve_memory(problem, options, clock, best);
  // Beyond, these take longer than the search.
  const double most_nodes = 2'000 * std::min(options.time_budget, 2.5);
  if (method.wide && static_cast<double>(problem.graph.num_nodes()) <= most_nodes) {
    for (const Method family : {cost_aware, kl}) {
      if (is_over(problem)) break;
      // Their memory is another: only their plans are of use here, not their reasons.
      if (const auto outcome = family(problem, options)) best.offer(outcome);
    }
  }
  bool cut_short = false;
  if (method.wide) {
    search.run(method.split);
    cut_short = search.truncated();
  }
  if (!best.plan()) look_for_room(problem, search.model(), options, clock, best);
  cut_short |= !polish(problem, search.model(), best,
                       {.seconds = options.time_budget * (1 - kSearchShare),
                        .clock = clock.left(),
                        .seed = problem.seed});
  if (method.wide) try_all(problem, search, options, clock, best, cut_short);
  return std::move(best).answer(method.name, objective_bound(problem, search.busiest_bound()),
                                cut_short);
}

}  // namespace

Outcome<Plan, Infeasible> start_plan(const Problem& problem, const Options& options) {
  constexpr double kEvaluationsASecond = 20'000;
  constexpr std::size_t kManyNodes = 2'000;
  Options quick = options;
  quick.work_limit = std::max<std::int64_t>(
      500, static_cast<std::int64_t>(options.time_budget * kEvaluationsASecond));
  if (options.work_limit > 0) quick.work_limit = std::min(quick.work_limit, options.work_limit);
  const bool many = problem.graph.num_nodes() > kManyNodes;
  return many ? chain_in_order(problem, quick) : chain(problem, quick);
}

Outcome<Plan, Infeasible> ideals(const Problem& problem, const Options& options) {
  return search_throughput(problem, options, {"ideals", place::ideals_split()});
}

Outcome<Plan, Infeasible> refine_plan(const Problem& problem, const Options& options) {
  const Search method{"refine", place::refine_split()};
  return problem.objective == Objective::throughput ? search_throughput(problem, options, method)
                                                    : search_objective(problem, options, method);
}

Outcome<Plan, Infeasible> auto_plan(const Problem& problem, const Options& options) {
  const Search method{"auto", place::auto_split(), true};
  return problem.objective == Objective::throughput ? search_throughput(problem, options, method)
                                                    : search_objective(problem, options, method);
}

Outcome<Plan, Infeasible> split_plan(const Problem& problem, const Options& options,
                                     std::string_view name, const place::SplitMethod& method) {
  // Cuts in between nodes are what these are about: coarse only where there is no other way.
  const SearchScope scope{.seconds = options.time_budget,
                          .prove = false,
                          .mixed = method.shape != place::Shape::contiguous,
                          .most_nodes = 50'000};
  const StopClock clock(options.time_budget);
  TracedSearch search(problem, options, scope);
  search.run(method);
  // Mixed-Pipe is there for where memory is short; the others are what they are.
  if (method.for_short_memory && !search.best().plan() && !search.is_coarse()) {
    look_for_room(problem, search.model(), options, clock, search.best());
  }
  if (problem.training && !search.best().plan() && !search.is_coarse()) {
    repair_memory(problem, options, method, scope, clock, search);
  }
  if (problem.training && !search.best().plan()) {
    offer_chain(problem, options, name, search.best());
  }
  if (!search.best().plan() && !(is_over(problem) && search.best().has_answer())) {
    search.best().offer(with_ample_memory(problem, options, method, scope));
  }
  auto outcome = std::move(search.best())
                     .answer(std::string(name), search.busiest_bound(), search.truncated());
  const auto [minimise, imbalance] = options.method.balance;
  if (outcome && minimise == place::Minimise::edge_cut) note_imbalance(imbalance, *outcome);
  return outcome;
}

}  // namespace kerf::partition
