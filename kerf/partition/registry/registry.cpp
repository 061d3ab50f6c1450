// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/registry/registry.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kerf/base/stop_clock.h"
#include "kerf/partition/baseline/baseline.h"
#include "kerf/partition/chain/chain.h"
#include "kerf/partition/fx/methods.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/raise/replicate.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/partition/search/exact.h"
#include "kerf/partition/search/methods.h"
#include "kerf/place/portfolio/families.h"

namespace kerf::partition {
namespace {

// A family's method: the name is all that tells them apart.
template <const char* kName>
Outcome<Plan, Infeasible> family(const Problem& problem, const Options& options) {
  return family_plan(problem, options, kName);
}

constexpr char kMixedPipe[] = "mixed_pipe";
constexpr char kMultilevel[] = "multilevel";
constexpr char kAcyclic[] = "acyclic";
constexpr char kMetis[] = "metis";
constexpr char kPipedream[] = "pipedream";
constexpr char kBinpack2d[] = "binpack2d";

constexpr bool kAnyObjective = true;
constexpr bool kSearches = true;
constexpr bool kNeedsAssignment = true;

}  // namespace

std::vector<Entry> methods() {
  return {
      {"chain", "best contiguous split of the graph's order, devices in any order (default)",
       chain},
      {"auto", "what suits the problem inside the time budget, with a bound; any objective",
       auto_plan, kAnyObjective, kSearches},
      {"ideals", "best contiguous split over all orders of the graph", ideals, false, kSearches},
      {"refine", "any split, several stages on a device where need be; any objective", refine_plan,
       kAnyObjective, kSearches},
      {"exact", "best split of all, proved by minimum cuts, as far as the budget goes", exact,
       kAnyObjective, kSearches},
      {"mixed_pipe", "more stages than devices, placed so that time and memory are even",
       family<kMixedPipe>, false, kSearches},
      {"multilevel", "one stage per device: coarsened without cycles, cut, refined level by level",
       family<kMultilevel>, false, kSearches},
      {"acyclic", "one stage per device: topological orders cut into runs, refined by moves",
       family<kAcyclic>, false, kSearches},
      {"metis", "METIS' k-way partition, cut into stages", family<kMetis>},
      {"pipedream", "PipeDream: runs of the order, transfers hidden behind compute",
       family<kPipedream>},
      {"binpack2d", "FTPipe's 2-D bin packing: nodes of like cost shared out together",
       family<kBinpack2d>},
      {"even", "pieces of equal node counts, blind to cost", even},
      {"single", "everything on the fastest device that holds it", single},
      {"size", "as few devices as hold it, nodes in order, blind to time (fx)", size},
      {"sparse_nn", "embeddings one device each, beside all the rest (fx)", sparse_nn},
      {"cost_aware", "shortest run of one micro-batch, many starts (fx)", cost_aware},
      {"kl", "shortest run of one micro-batch, moves and swaps (fx)", kl},
      {"aot", "partitions and devices as given, checked (fx)", aot, false, false, kNeedsAssignment},
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
  std::vector<std::string_view> names;
  for (const Entry& known : methods()) names.push_back(known.name);
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[partition.plan] unknown method '{}'; expected one of {}", name,
                          fmt::join(names, ", ")));
}

std::vector<std::string> comparable_methods() {
  std::vector<std::string> names;
  for (const Entry& entry : methods()) {
    if (!entry.needs_assignment) names.emplace_back(entry.name);
  }
  return names;
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

// A method that knows nothing of one stage per device may have given more.
void check_unmixed(std::string_view method, const Plan& plan) {
  if (!has_mixed_stages(plan)) return;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[partition.plan] method '{}' gave a device several stages, and mixed "
                          "placement is off; expected a method that can do without, such as "
                          "chain, auto or multilevel",
                          method));
}

std::string any_objective_names() {
  std::vector<std::string_view> names;
  for (const Entry& entry : methods()) {
    if (entry.any_objective) names.push_back(entry.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Outcome<Plan, Infeasible> solve(const Problem& problem, const Entry& method,
                                const Options& options) {
  check_assignment(method, options);
  check_problem(problem);
  check_budget(options);
  // What only some methods know must not be lost on the others in silence.
  place::LoadOptions its;
  its.stages = options.stages;
  its.minimise = options.minimise;
  its.imbalance = options.imbalance;
  place::check_family_options(method.name, its);
  if (problem.objective != Objective::throughput && !method.any_objective) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[partition.plan] method '{}' cannot minimise '{}'; use throughput, or "
                            "one of the methods {}",
                            method.name, to_string(problem.objective), any_objective_names()));
  }
  if (problem.graph.num_nodes() == 0) {
    throw Error(ErrorKind::invalid_graph,
                fmt::format("[partition.plan] graph '{}' has no nodes; there is nothing to plan",
                            problem.graph.name()));
  }
  // Searches stop when their time is over; for all that comes with them there is a little more.
  constexpr double kMoreOfIt = 0.2;
  constexpr double kMoreAtLeast = 0.07;  // seconds
  const double more = std::max(options.time_budget * kMoreOfIt, kMoreAtLeast);
  const DeadlineScope deadline(options.time_budget + more);
  Outcome<Plan, Infeasible> outcome = method.method(problem, options);
  if (outcome) outcome->timed_out = deadline.timed_out();
  if (outcome && !options.mixed) check_unmixed(method.name, *outcome);
  if (!outcome || !options.saturate_host) return outcome;
  return saturate_host(problem, std::move(*outcome));
}

Outcome<Plan, Infeasible> solve(const Problem& problem, std::string_view method,
                                const Options& options) {
  return solve(problem, get_method(method), options);
}

}  // namespace kerf::partition
