// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Every method on hundreds of small random problems, against brute force and against each other.
#include "kerf/partition/partition.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/finish.h"
#include "kerf/verify/verify_plan.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

// What devices need when nodes are spread evenly: limits around it are sometimes enough.
Bytes typical_need(const Problem& problem) {
  const auto outcome = plan(problem, "single");
  return Bytes{outcome->memory[outcome->stages[0].device.index()].predicted.count};
}

Problem limited_problem(std::uint64_t seed, const RandomProblemOptions& options) {
  Problem problem = random_problem(seed, options);
  limit_memory(problem, seed, typical_need(problem));
  return problem;
}

// `best`: -1 when nothing fits.
void consider(const Plan& plan, double& best) {
  if (find_overflow(plan)) return;
  if (best < 0 || plan.busiest.count < best) best = plan.busiest.count;
}

void expect_sound(const Problem& problem, const Plan& plan, std::uint64_t seed) {
  for (const Violation& violation : verify_plan(problem.graph, &problem.profile, plan)) {
    ADD_FAILURE() << "seed " << seed << ", " << plan.method << ": " << violation.rule << ": "
                  << violation.message;
  }
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
    const auto best = plan(problem, "exact");
    if (best) expect_sound(problem, *best, seed);
    for (const char* method : {"single", "even", "chain"}) {
      const auto outcome = plan(problem, method);
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

// All assignments of nodes to devices, judged by make_plan and the verifier alone.
TEST(Exact, EqualsEnumerationOfAllAssignments) {
  int feasible = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Problem problem = limited_problem(seed, {.graph = {.num_nodes = 6, .decorate = false},
                                                   .num_devices = 2 + seed % 2,
                                                   .equal_links = seed % 2 == 0});
    const std::size_t nodes = problem.graph.num_nodes();
    const std::size_t devices = problem.cluster.num_devices();
    std::size_t count = 1;
    for (std::size_t n = 0; n < nodes; ++n) count *= devices;
    double best = -1;
    for (std::size_t code = 0; code < count; ++code) {
      std::vector<std::vector<NodeId>> stages(devices);
      std::size_t rest = code;
      for (std::size_t n = 0; n < nodes; ++n, rest /= devices) {
        stages[rest % devices].emplace_back(n);
      }
      std::vector<DeviceId> order;
      for (std::size_t d = 0; d < devices; ++d) order.emplace_back(d);
      try {
        const Plan plan = make_plan(problem, stages, order, "brute");
        if (verify_plan(problem.graph, &problem.profile, plan).empty()) consider(plan, best);
      } catch (const Error&) {
        continue;  // a cycle
      }
    }
    const auto outcome = plan(problem, "exact");
    ASSERT_EQ(static_cast<bool>(outcome), best >= 0) << seed;
    if (outcome) {
      EXPECT_NEAR(outcome->busiest.count, best, 1e-6) << seed;
      ++feasible;
    }
  }
  EXPECT_GT(feasible, 20);
}

TEST(EveryMethod, GivesTheSamePlanAgain) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const Problem problem = limited_problem(seed, {.equal_links = seed % 2 == 0});
    for (const partition::Entry& entry : partition::methods()) {
      partition::Options options;
      if (entry.name == "aot") {
        options.partition_to_device[0] = problem.cluster.devices.front().name;
        for (const Node& node : problem.graph.nodes()) options.node_to_partition[node.name] = 0;
      }
      const auto first = plan(problem, entry.name, options);
      const auto second = plan(problem, entry.name, options);
      ASSERT_EQ(static_cast<bool>(first), static_cast<bool>(second));
      if (first) {
        EXPECT_EQ(print_plan(*first), print_plan(*second)) << seed << entry.name;
      } else {
        EXPECT_EQ(first.reason().message(), second.reason().message());
      }
    }
  }
}

TEST(Planning, RefusesAnUnknownMethodWithTheNamesOfTheOthers) {
  try {
    plan(random_problem(1), "tarot");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(
        error.what(),
        ::testing::HasSubstr("chain, even, single, size, sparse_nn, cost_aware, kl, aot, exact"));
  }
}

TEST(Planning, RefusesAnEmptyGraphAndObjectivesNobodyMinimises) {
  Problem problem = random_problem(1);
  problem.objective = Objective::memory;
  EXPECT_THROW(plan(problem), Error);
  problem = random_problem(1);
  problem.graph = Graph();
  problem.profile = {};
  problem.profile.graph_hash = problem.graph.hash();
  problem.batch = 0;
  problem.n_microbatches = 1;
  EXPECT_THROW(plan(problem), Error);
}

TEST(ReplacingTheProblem, ResimulatesTheSameStagesAndChecksMemoryAgain) {
  Problem problem = random_problem(4);
  problem.batch = 8;
  problem.n_microbatches = 2;
  const auto before = plan(problem, "even");
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
