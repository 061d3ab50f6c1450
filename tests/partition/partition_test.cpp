// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Every method on hundreds of small random problems, against brute force and against each other.
#include "kerf/partition/registry/solve.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/verify/verify_plan.h"
#include "tests/support/expect_verified.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

// What devices need when nodes are spread evenly: limits around it are sometimes enough.
Bytes typical_need(const Problem& problem) {
  const auto outcome = partition::solve(problem, "single");
  return Bytes{outcome->memory[outcome->stages[0].device.index()].predicted.count};
}

Problem limited_problem(std::uint64_t seed, const RandomProblemOptions& options) {
  Problem problem = random_problem(seed, options);
  limit_memory(problem, seed, typical_need(problem));
  return problem;
}

void expect_sound(const Problem& problem, const Plan& plan, std::uint64_t seed) {
  expect_verified(problem, plan, seed);
  EXPECT_FALSE(plan.truncated);
  EXPECT_FALSE(plan.lower_bound.argument.empty());
  for (const LowerBound& bound : partition::lower_bounds(problem)) {
    EXPECT_LE(bound.value, plan.busiest.count * (1 + 1e-9)) << seed << bound.name;
  }
}

TEST(EveryMethod, IsSoundAndNeverBeatsExact) {
  int compared = 0;
  int better = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Problem problem = limited_problem(seed, {.graph = {.num_nodes = 9, .decorate = false},
                                                   .num_devices = 2 + seed % 2,
                                                   .equal_links = seed % 2 == 0,
                                                   .shared_memory = seed % 5 == 0});
    partition::Options patient;
    patient.time_budget = 60;
    const auto best = partition::solve(problem, "exact", patient);
    if (best) expect_sound(problem, *best, seed);
    for (const char* method : {"single", "even", "chain"}) {
      const auto outcome = partition::solve(problem, method);
      if (!outcome) continue;
      expect_sound(problem, *outcome, seed);
      ASSERT_TRUE(best) << "seed " << seed << ": " << method << " fits and exact says nothing does";
      EXPECT_GE(outcome->busiest.count, best->busiest.count * (1 - 1e-9)) << seed << method;
      ++compared;
      better += outcome->busiest.count > best->busiest.count * (1 + 1e-9) ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 200);
  EXPECT_GT(better, 50) << "exact should often be better than a baseline";
}

TEST(EveryMethod, GivesTheSamePlanAgain) {
  int compared = 0;
  int timed_out = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Problem problem = limited_problem(seed, {.equal_links = seed % 2 == 0});
    for (const partition::Entry& entry : partition::methods()) {
      partition::Options options;
      options.time_budget = 0.05;
      if (entry.name == "aot") {
        options.partition_to_device[0] = problem.cluster.devices.front().name;
        for (const Node& node : problem.graph.nodes()) options.node_to_partition[node.name] = 0;
      }
      const auto first = partition::solve(problem, entry.name, options);
      const auto second = partition::solve(problem, entry.name, options);
      ASSERT_EQ(static_cast<bool>(first), static_cast<bool>(second));
      if (first) {
        if (first->timed_out || second->timed_out) {
          ++timed_out;
          continue;
        }
        EXPECT_EQ(print_plan(*first), print_plan(*second)) << seed << entry.name;
        ++compared;
      } else {
        EXPECT_EQ(first.reason().message(), second.reason().message());
      }
    }
  }
  EXPECT_GT(compared, 20 * timed_out) << "the clock is a last resort";
  EXPECT_GT(compared, 120);
}

TEST(Planning, RefusesAnUnknownMethodWithTheNamesOfTheOthers) {
  try {
    partition::solve(random_problem(1), "tarot");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("chain, auto, ideals, refine, exact, mixed_pipe, multilevel, "
                                     "acyclic, metis, pipedream, binpack2d, even, "
                                     "single, size, sparse_nn, cost_aware, kl, aot"));
  }
}

TEST(Planning, RefusesAnEmptyGraphAndObjectivesNobodyMinimises) {
  Problem problem = random_problem(1);
  problem.objective = Objective::memory;
  EXPECT_THROW(partition::solve(problem), Error);
  problem = random_problem(1);
  problem.graph = Graph();
  problem.profile = {};
  problem.profile.graph_hash = problem.graph.hash();
  problem.batch = 0;
  problem.n_microbatches = 1;
  EXPECT_THROW(partition::solve(problem), Error);
}

TEST(ReplacingTheProblem, ResimulatesTheSameStagesAndChecksMemoryAgain) {
  Problem problem = random_problem(4);
  problem.batch = 8;
  problem.n_microbatches = 2;
  const auto before = partition::solve(problem, "even");
  ASSERT_TRUE(before);
  problem.n_microbatches = 8;
  const auto after = replace_problem(*before, problem);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->n_microbatches, 8);
  EXPECT_EQ(after->micro_batch, 1);
  EXPECT_EQ(after->num_stages(), before->num_stages());
  EXPECT_TRUE(verify_plan(problem.graph, &problem.profile, *after).empty());
  for (Device& device : problem.cluster.devices) {
    device.memory_limited = true;
    device.memory = Bytes{1};
  }
  EXPECT_FALSE(replace_problem(*before, problem));
}

}  // namespace
}  // namespace kerf
