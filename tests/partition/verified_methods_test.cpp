// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Every method's plans before the verifier, which shares no code with them: all communication
// models and objectives, unequal devices and links, shared wires and memories, host devices,
// limits, several micro-batches that do not divide the batch.
#include <gtest/gtest.h>

#include <map>

#include "kerf/partition/registry/registry.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/place/metis/kway.h"
#include "kerf/plan/metrics.h"
#include "kerf/verify/verify_asked.h"
#include "kerf/verify/verify_plan.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

constexpr Objective kObjectives[] = {Objective::throughput, Objective::latency, Objective::step,
                                     Objective::memory};

Problem make_problem(std::uint64_t seed, const std::string& comm_model) {
  RandomProblemOptions options;
  options.graph.num_nodes = 14;
  options.graph.writes = seed % 3 == 0;  // they glue nodes together
  options.num_devices = 2 + seed % 3;
  options.equal_links = seed % 2 == 0;
  options.shared_memory = seed % 4 == 0;
  Problem problem = random_problem(seed, options);
  problem.comm_model = parse_comm_model(comm_model);
  Rng rng(seed * 13 + 5);
  for (Device& device : problem.cluster.devices) device.host = rng.below(3) == 0;
  const bool wired = rng.below(3) == 0;
  for (Link& link : problem.cluster.links) link.shared = wired;
  if (seed % 5 == 0) {
    const auto alone = partition::solve(problem, "single");
    const Bytes need = alone->memory[alone->stages[0].device.index()].predicted;
    limit_memory(problem, seed, Bytes{need.count * 4 / 5});
  }
  return problem;
}

std::vector<Violation> violations_of(const Problem& problem, const Plan& plan) {
  std::vector<Violation> out = verify_plan(problem.graph, &problem.profile, plan);
  for (Violation& violation : verify_asked(problem, plan)) out.push_back(std::move(violation));
  return out;
}

// Plans of every method for problems of these seeds, judged; by method, how many there were.
std::map<std::string_view, int> verified_plans(bool given_transfers) {
  std::map<std::string_view, int> plans;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    for (const std::string& comm_model : comm_model_names()) {
      Problem problem = make_problem(seed, comm_model);
      if (given_transfers) give_transfers(problem, seed);
      for (const partition::Entry& entry : partition::methods()) {
        // `aot` is given its placement; METIS is not everywhere.
        if (given_transfers && entry.sizes_alone) continue;
        if (entry.name == "aot" || (entry.name == "metis" && !place::has_metis())) continue;
        partition::Options options;
        options.time_budget = 0.02;
        problem.objective = entry.any_objective ? kObjectives[seed % 4] : Objective::throughput;
        const auto outcome = partition::solve(problem, entry.name, options);
        if (!outcome) continue;
        ++plans[entry.name];
        for (const Violation& violation : violations_of(problem, *outcome)) {
          ADD_FAILURE() << entry.name << ", seed " << seed << ", " << comm_model << ": "
                        << violation.rule << ": " << violation.message;
        }
      }
    }
  }
  return plans;
}

TEST(EveryMethod, HasTheFiguresThatTheVerifierDerives) {
  const std::map<std::string_view, int> plans = verified_plans(false);
  EXPECT_GE(plans.size(), partition::methods().size() - 2);
  for (const auto& [method, count] : plans) EXPECT_GE(count, 5) << method;
}

TEST(EveryMethod, CountsTransfersThatAreGiven) {
  const std::map<std::string_view, int> plans = verified_plans(true);
  EXPECT_GE(plans.size(), partition::methods().size() - 4);
  for (const auto& [method, count] : plans) EXPECT_GE(count, 5) << method;
}

TEST(MethodsThatKnowSizesAlone, RefuseTransfersThatAreGiven) {
  Problem problem = make_problem(1, "link");
  give_transfers(problem, 1);
  EXPECT_THROW(partition::solve(problem, "kl"), Error);
  EXPECT_THROW(partition::solve(problem, "cost_aware"), Error);
}

}  // namespace
}  // namespace kerf
