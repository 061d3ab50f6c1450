// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The FX family as methods of the registry, on any problem.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/base/error.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/verify/verify_plan.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

using ::testing::HasSubstr;

Problem some_problem(std::uint64_t seed, bool limited) {
  Problem problem = random_problem(seed, {.graph = {.num_nodes = 12, .decorate = false},
                                          .num_devices = 2 + seed % 3,
                                          .equal_links = seed % 2 == 0,
                                          .shared_memory = seed % 5 == 0});
  if (!limited) return problem;
  const auto whole = partition::solve(problem, "single");
  Bytes most;
  for (const DeviceMemory& memory : whole->memory) most = std::max(most, memory.predicted);
  limit_memory(problem, seed, most);
  return problem;
}

TEST(FxMethods, GiveSoundPlansWithinMemory) {
  int feasible = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const Problem problem = some_problem(seed, seed % 3 != 0);
    for (const char* method : {"size", "sparse_nn", "cost_aware", "kl"}) {
      const auto outcome = partition::solve(problem, method);
      if (!outcome) continue;
      const auto violations = verify_plan(problem.graph, &problem.profile, *outcome);
      EXPECT_TRUE(violations.empty())
          << seed << ' ' << method << ": " << violations.front().message;
      EXPECT_GE(outcome->busiest.count, outcome->lower_bound.value * (1 - 1e-9)) << seed;
      ++feasible;
    }
  }
  EXPECT_GT(feasible, 250);
}

TEST(FxMethods, FitWhereverOneDeviceHoldsEverything) {
  int held = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Problem problem = some_problem(seed, true);
    if (!partition::solve(problem, "single")) continue;
    ++held;
    for (const char* method : {"size", "sparse_nn", "cost_aware", "kl"}) {
      const auto outcome = partition::solve(problem, method);
      EXPECT_TRUE(outcome) << seed << ' ' << method << ": " << outcome.reason().message();
    }
  }
  EXPECT_GT(held, 10);
}

class AnAotPlan : public ::testing::Test {
 protected:
  void SetUp() override {
    // The first whose nodes may all be cut apart.
    for (std::uint64_t seed = 0; problem_.graph.num_nodes() == 0; ++seed) {
      const Problem drawn =
          random_problem(seed, {.graph = {.num_nodes = 8, .decorate = false}, .num_devices = 2});
      if (drawn.graph.glued().empty()) problem_ = drawn;
    }
    for (std::size_t d = 0; d < 2; ++d) {
      options_.partition_to_device[static_cast<std::int64_t>(d) * 5] =
          problem_.cluster.devices[d].name;
    }
    const auto chain = partition::solve(problem_, "even");
    for (const Stage& stage : chain->stages) {
      for (const NodeId node : stage.nodes) {
        options_.node_to_partition[problem_.graph.node(node).name] =
            static_cast<std::int64_t>(stage.device.index()) * 5;
      }
    }
    expected_ = chain->stage_of_nodes();
  }
  std::string refusal() {
    try {
      partition::solve(problem_, "aot", options_);
    } catch (const Error& error) {
      return error.what();
    }
    return "it was taken";
  }
  Problem problem_;
  partition::Options options_;
  std::vector<StageId> expected_;
};

TEST_F(AnAotPlan, IsWhatWasGiven) {
  const auto outcome = partition::solve(problem_, "aot", options_);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->stage_of_nodes(), expected_);
  EXPECT_TRUE(verify_plan(problem_.graph, &problem_.profile, *outcome).empty());
}
TEST_F(AnAotPlan, NeedsAPartitionForEveryNode) {
  options_.node_to_partition.erase(options_.node_to_partition.begin());
  EXPECT_THAT(refusal(), HasSubstr("no partition"));
}
TEST_F(AnAotPlan, NeedsNodesThatExist) {
  options_.node_to_partition["nobody"] = 0;
  EXPECT_THAT(refusal(), HasSubstr("'nobody'"));
}
TEST_F(AnAotPlan, NeedsADeviceForEveryPartition) {
  options_.partition_to_device.erase(5);
  EXPECT_THAT(refusal(), HasSubstr("partition 5 has no device"));
}
TEST_F(AnAotPlan, NeedsDevicesThatExist) {
  options_.partition_to_device[5] = "cuda:9";
  EXPECT_THAT(refusal(), HasSubstr("'cuda:9'"));
}
TEST_F(AnAotPlan, MustNotWaitForItself) {
  // One node with something before and after it, alone.
  for (auto& [name, partition] : options_.node_to_partition) partition = 0;
  for (std::size_t n = 0; n < problem_.graph.num_nodes(); ++n) {
    const NodeId node{n};
    if (problem_.graph.predecessors(node).empty() || problem_.graph.successors(node).empty()) {
      continue;
    }
    options_.node_to_partition[problem_.graph.node(node).name] = 5;
    break;
  }
  EXPECT_THAT(refusal(), HasSubstr("wait for each other in a cycle: "));
}
TEST_F(AnAotPlan, KeepsTheMemoryLimits) {
  for (Device& device : problem_.cluster.devices) {
    device.memory = Bytes{8};
    device.memory_limited = true;
  }
  const auto outcome = partition::solve(problem_, "aot", options_);
  ASSERT_FALSE(outcome);
  EXPECT_GT(outcome.reason().short_by, Bytes{0});
}

}  // namespace
}  // namespace kerf
