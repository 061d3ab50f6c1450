// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/registry/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "kerf/base/stop_clock.h"
#include "kerf/partition/baseline/baseline.h"
#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/chain/chain.h"
#include "kerf/partition/fx/methods.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/raise/replicate.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/partition/search/exact.h"
#include "kerf/partition/search/methods.h"
#include "kerf/partition/training/advice.h"
#include "kerf/partition/training/kept_last_stage.h"
#include "kerf/partition/training/looped.h"
#include "kerf/partition/training/recompute_search.h"
#include "kerf/place/portfolio/split_methods.h"

namespace kerf::partition {
namespace {

template <class Predicate>
std::vector<std::string> names_of(Predicate&& is_one) {
  std::vector<std::string> names;
  for (const Entry& entry : methods()) {
    if (std::invoke(is_one, entry)) names.emplace_back(entry.name);
  }
  return names;
}

}  // namespace

std::vector<Entry> methods() {
  using place::Takes;
  return {
      {.name = "chain",
       .description = "best contiguous split of the graph's order, devices in any order (default)",
       .method = chain,
       .split = place::chain_split},
      {.name = "auto",
       .description =
           "a combination of methods within the time budget, with a bound; any objective",
       .method = auto_plan,
       .split = place::auto_split,
       .any_objective = true,
       .published_latency = true,
       .searches = true},
      {.name = "ideals",
       .description = "best contiguous split over all orders of the graph",
       .method = ideals,
       .split = place::ideals_split,
       .searches = true},
      {.name = "refine",
       .description = "any split, several stages on a device if needed; any objective",
       .method = refine_plan,
       .split = place::refine_split,
       .any_objective = true,
       .published_latency = true,
       .searches = true},
      {.name = "exact",
       .description = "best split of all, proved by minimum cuts within the budget",
       .method = exact,
       .split = place::exact_split,
       .any_objective = true,
       .searches = true},
      {.name = "mixed_pipe",
       .description = "more stages than devices, balancing time and memory",
       .split = place::mixed_pipe_split,
       .searches = true,
       .takes = Takes::mixed_pipe},
      {.name = "multilevel",
       .description = "one stage per device: coarsened without cycles, cut, refined level by level",
       .split = place::multilevel_split,
       .searches = true,
       .takes = Takes::balance},
      {.name = "acyclic",
       .description = "one stage per device: topological orders cut into runs, refined by moves",
       .split = place::acyclic_split_method,
       .searches = true,
       .takes = Takes::balance},
      {.name = "metis",
       .description = "METIS' k-way partition, cut into stages",
       .split = place::metis_split_method},
      {.name = "pipedream",
       .description = "PipeDream: runs of the order, transfers hidden behind compute",
       .split = place::pipedream_split},
      {.name = "binpack2d",
       .description = "FTPipe's 2-D bin packing: nodes of similar cost spread over the devices",
       .split = place::binpack2d_split},
      {.name = "even",
       .description = "runs of equal node counts, whatever they cost",
       .method = even},
      {.name = "single",
       .description = "everything on the fastest device that has room",
       .method = single},
      {.name = "size",
       .description = "as few devices as possible, nodes in order, ignoring time (fx)",
       .method = size},
      {.name = "sparse_nn",
       .description = "each embedding on a device of its own, with all other nodes (fx)",
       .method = sparse_nn},
      {.name = "cost_aware",
       .description = "shortest latency of one micro-batch, many starts (fx)",
       .method = cost_aware,
       .sizes_alone = true},
      {.name = "kl",
       .description = "shortest latency of one micro-batch, moves and swaps (fx)",
       .method = kl,
       .sizes_alone = true},
      {.name = "aot",
       .description = "partitions and devices as given, checked (fx)",
       .method = aot,
       .needs_assignment = true},
  };
}

const Entry* find_method(std::string_view name) {
  static const std::vector<Entry> all = methods();
  for (const Entry& entry : all) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

const Entry& get_method(std::string_view name) {
  if (const Entry* entry = find_method(name)) return *entry;
  const std::vector<std::string> names = names_of([](const Entry&) { return true; });
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[partition.plan] unknown method '{}'; expected one of {}", name,
                          fmt::join(names, ", ")));
}

std::vector<std::string> comparable_methods() {
  return names_of([](const Entry& entry) { return !entry.needs_assignment; });
}

std::vector<std::string> published_methods() {
  return names_of([](const Entry& entry) { return entry.split != nullptr; });
}

namespace {

// An assignment and the one method that takes it come together.
void check_assignment(const Entry& method, const Options& options) {
  const bool given = !options.node_to_partition.empty() || !options.partition_to_device.empty();
  const bool whole = !options.node_to_partition.empty() && !options.partition_to_device.empty();
  if (method.needs_assignment && !whole) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[partition.plan] method '{}' without an assignment; expected the "
                            "partition of every node and the device of every partition; give "
                            "node_to_partition and partition_to_device (--assignment)",
                            method.name));
  }
  if (!method.needs_assignment && given) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[partition.plan] an assignment for method '{}', which makes its "
                            "own; leave out node_to_partition and partition_to_device "
                            "(--assignment), or use method aot",
                            method.name));
  }
}

void check_budget(const Options& options) {
  if (!(options.time_budget > 0) || options.time_budget > 1e6) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[partition.plan] a time budget of {} s; expected more than 0 and at "
                            "most a million",
                            options.time_budget));
  }
  if (options.threads < 1 || options.threads > 1024) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[partition.plan] {} threads; expected 1 to 1024", options.threads));
  }
}

void check_looped(const Entry& method, const Problem& problem, const Options& options) {
  if (problem.stages_per_device == 1) return;
  if (!options.mixed) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[partition.plan] {} stages per device, and mixed placement is off, "
                            "which allows one; expected one of the two; use stages_per_device=1 "
                            "(--stages-per-device 1), or omit mixed=False (--no-mixed)",
                            problem.stages_per_device));
  }
  if (method.name == "chain" || method.name == kDefaultMethod || method.name == "auto") return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[partition.plan] method '{}' with {} stages per device; expected chain "
                          "or auto, which plan looped placements; use one of them, or "
                          "stages_per_device=1",
                          method.name, problem.stages_per_device));
}

void check_transfers(const Entry& method, const Problem& problem) {
  if (!method.sizes_alone || problem.transfer_times.empty()) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[partition.plan] method '{}' with given transfer times; expected a "
                          "method that counts them; it knows sizes and links alone: use auto or "
                          "refine, or leave out transfer_times",
                          method.name));
}

// Searches stop when their time is over; for all that comes with them there is a little more.
double with_a_little_more(double time_budget) {
  constexpr double kMoreOfIt = 0.2;
  constexpr double kMoreAtLeast = 0.07;  // seconds
  return time_budget + std::max(time_budget * kMoreOfIt, kMoreAtLeast);
}

// With what is computed again as it is in the problem.
Outcome<Plan, Infeasible> solve_once(const Problem& problem, const Options& options,
                                     const Entry& method) {
  const DeadlineScope deadline(with_a_little_more(options.time_budget));
  Outcome<Plan, Infeasible> outcome =
      problem.stages_per_device > 1 ? looped_plan(problem, options)
      : method.method != nullptr    ? method.method(problem, options)
                                    : split_plan(problem, options, method.name, method.split());
  if (outcome) {
    outcome->timed_out = deadline.timed_out();
    return outcome;
  }
  Infeasible reason = outcome.reason();
  reason.timed_out = deadline.timed_out();
  return reason;
}

Outcome<Plan, Infeasible> solve_whole(const Problem& problem, const Options& options,
                                      const Entry& method) {
  const auto once_by = [](const Entry& entry) {
    return [&entry](const Problem& posed, const Options& part) {
      return solve_once(posed, part, entry);
    };
  };
  const Solve once = once_by(method);
  if (problem.keep_last_stage) {
    std::vector<Solve> solves{once};
    // One stage per device is where keeping the last one gains most, and auto may mix them.
    if (method.name == "auto") solves.emplace_back(once_by(get_method("chain")));
    return solve_kept_last_stage(problem, options, solves);
  }
  if (!problem.training || problem.recompute != "auto") return once(problem, options);
  return solve_recompute(problem, options, once);
}

// The weights alone do not fit, whatever is done with the rest.
bool is_proved_impossible(const Problem& problem) {
  Problem by_memory = problem;
  by_memory.objective = Objective::memory;
  const double needed = best_lower_bound(by_memory).value;
  const std::vector<Device>& devices = problem.cluster.devices;
  return std::all_of(devices.begin(), devices.end(), [&](const Device& device) {
    return device.memory_limited && needed > static_cast<double>(device.memory.count);
  });
}

// A method that knows nothing of one stage per device may have given more.
void check_unmixed(std::string_view method, const Plan& plan) {
  if (!has_mixed_stages(plan)) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[partition.plan] method '{}' gave a device several stages, and mixed "
                          "placement is off; expected a method that gives one stage per device, "
                          "such as chain, auto or multilevel",
                          method));
}

}  // namespace

Outcome<Plan, Infeasible> solve(const Problem& problem, const Entry& method,
                                const Options& options) {
  check_assignment(method, options);
  check_problem(problem);
  check_budget(options);
  place::check_options(options.method, method.name, method.takes);
  if (problem.objective != Objective::throughput && !method.any_objective) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[partition.plan] method '{}' cannot minimise '{}'; use throughput, or "
                            "one of the methods {}",
                            method.name, to_string(problem.objective),
                            fmt::join(names_of(&Entry::any_objective), ", ")));
  }
  if (problem.graph.num_nodes() == 0) {
    throw Error(ErrorKind::invalid_graph,
                fmt::format("[partition.plan] graph '{}' has no nodes; expected at least one; "
                            "there is nothing to plan",
                            problem.graph.name()));
  }
  check_looped(method, problem, options);
  check_transfers(method, problem);
  Outcome<Plan, Infeasible> outcome = solve_whole(problem, options, method);
  if (!outcome) {
    Infeasible reason = outcome.reason();
    if (is_proved_impossible(problem)) reason.caveat.clear();
    if (!problem.training) return reason;
    const Solve again = [&](const Problem& posed, const Options& part) {
      return solve_whole(posed, part, method);
    };
    return advise(problem, options, again, std::move(reason));
  }
  if (!options.mixed) check_unmixed(method.name, *outcome);
  if (!options.saturate_host) return outcome;
  return saturate_host(problem, std::move(*outcome));
}

Outcome<Plan, Infeasible> solve(const Problem& problem, std::string_view method,
                                const Options& options) {
  return solve(problem, get_method(method), options);
}

}  // namespace kerf::partition
