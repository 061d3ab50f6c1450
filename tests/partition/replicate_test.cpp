// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/raise/replicate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/device/devices.h"
#include "kerf/graph/text.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/profile/estimate.h"
#include "kerf/verify/verify_plan.h"
#include "tests/support/random_problem.h"
#include "tests/support/small_graph.h"

namespace kerf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A device with bytes in use is used, one with -1 is idle.
std::vector<std::vector<std::size_t>> replicas(const std::vector<std::int64_t>& bytes,
                                               const std::vector<std::int64_t>& capacity) {
  std::vector<std::uint8_t> used;
  for (const std::int64_t each : bytes) used.push_back(each >= 0 ? 1 : 0);
  return partition::find_replicas(bytes, used, capacity);
}

TEST(Replicas, TakeTheSmallestIdleDeviceThatIsLargeEnough) {
  EXPECT_THAT(replicas({10, -1, -1, -1}, {50, 40, 9, 10}),
              ElementsAre(ElementsAre(3), ElementsAre(1)));
}

TEST(Replicas, TakeTheFirstOfEqualDevices) {
  EXPECT_THAT(replicas({-1, 7, -1, 7, -1, -1}, {8, 8, 8, 8, 8, 8}),
              ElementsAre(ElementsAre(0, 2), ElementsAre(4, 5)));
}

TEST(Replicas, AreWholeOrNotAtAll) {
  // The second used device finds nothing in the second round: its first device is free again.
  EXPECT_THAT(replicas({1, 9, -1, -1, -1, -1}, {10, 10, 5, 5, 10, 5}),
              ElementsAre(ElementsAre(2, 4)));
  EXPECT_THAT(replicas({9, 9, -1, -1}, {10, 10, 10, 5}), IsEmpty());
}

TEST(Replicas, NeedAnIdleDeviceForEachUsedOne) {
  EXPECT_THAT(replicas({1, 1, -1}, {9, 9, 9}), IsEmpty());
  EXPECT_THAT(replicas({1, 1}, {9, 9}), IsEmpty());
  EXPECT_THAT(replicas({-1, -1}, {9, 9}), IsEmpty()) << "nothing to copy";
  EXPECT_THAT(replicas({}, {}), IsEmpty());
}

TEST(Replicas, OfADeviceThatHoldsNothingButIsUsedAreMade) {
  EXPECT_THAT(replicas({0, -1}, {9, 0}), ElementsAre(ElementsAre(1)));
}

// The rule as the specification words it, with its own loop condition.
std::vector<std::vector<std::size_t>> by_the_book(const std::vector<std::int64_t>& bytes,
                                                  const std::vector<std::int64_t>& capacity) {
  std::vector<std::size_t> used;
  for (std::size_t d = 0; d < bytes.size(); ++d) {
    if (bytes[d] >= 0) used.push_back(d);
  }
  std::vector<std::vector<std::size_t>> rounds;
  std::vector<bool> taken(bytes.size());
  while (used.size() * 2 + rounds.size() * used.size() <= bytes.size()) {
    std::vector<bool> now = taken;
    std::vector<std::size_t> round;
    for (const std::size_t u : used) {
      std::size_t best = bytes.size();
      for (std::size_t d = 0; d < bytes.size(); ++d) {
        if (bytes[d] >= 0 || now[d] || capacity[d] < bytes[u]) continue;
        if (best == bytes.size() || capacity[d] < capacity[best]) best = d;
      }
      if (best == bytes.size()) return rounds;
      now[best] = true;
      round.push_back(best);
    }
    taken = now;
    rounds.push_back(round);
  }
  return rounds;
}

TEST(Replicas, AreThoseOfTheSpecificationOnRandomDevices) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Rng rng(seed);
    const std::size_t devices = 1 + rng.below(12);
    std::vector<std::int64_t> bytes;
    std::vector<std::int64_t> capacity;
    for (std::size_t d = 0; d < devices; ++d) {
      const bool used = d == 0 || rng.below(3) == 0;
      bytes.push_back(used ? static_cast<std::int64_t>(rng.below(6)) : -1);
      capacity.push_back(static_cast<std::int64_t>(rng.below(8)));
    }
    EXPECT_EQ(replicas(bytes, capacity), by_the_book(bytes, capacity)) << seed;
  }
}

Problem small_problem(std::string_view devices) {
  Problem problem;
  problem.graph = small_graph();
  problem.cluster = parse_devices(devices);
  problem.profile = estimate(problem.graph, device_kind("cpu"));
  return problem;
}

// Always verified.
Plan saturated(const Problem& problem, std::string_view method) {
  const auto outcome = partition::solve(problem, method, {.saturate_host = true});
  check_plan(problem.graph, &problem.profile, *outcome);
  return *outcome;
}

TEST(SaturateHost, FillsTheHostWithCopiesAfterAnyMethod) {
  const Problem problem = small_problem("cuda:0=1MiB,cuda:1=1MiB,cuda:2=20KiB,cuda:3=1MiB");
  EXPECT_THAT(saturated(problem, "single").replica_names(),
              ElementsAre(ElementsAre("cuda:1"), ElementsAre("cuda:3")));
  EXPECT_THAT(partition::solve(problem, "single")->replicas, IsEmpty()) << "only when asked";
}

TEST(SaturateHost, SaysWhenThereIsNoRoom) {
  const Plan plan = saturated(small_problem("cuda:0=1MiB,cuda:1=20KiB"), "single");
  EXPECT_THAT(plan.replicas, IsEmpty());
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("no room for a replica")));
}

TEST(SaturateHost, TakesAnyDeviceWithoutALimit) {
  EXPECT_EQ(saturated(small_problem("4xcuda"), "single").replicas.size(), 3U);
}

TEST(SaturateHost, CountsMemoriesThatDevicesShare) {
  // About 35 KiB a copy: cuda:0 has room for two of its three, cuda:1 for one of two.
  const Problem problem =
      small_problem("cuda:0=80KiB,cuda:0=80KiB,cuda:0=80KiB,cuda:1=50KiB,cuda:1=50KiB");
  const Plan plan = saturated(problem, "single");
  EXPECT_EQ(plan.stages[0].device, DeviceId{0});
  EXPECT_THAT(plan.replica_names(), ElementsAre(ElementsAre("cuda:0#1"), ElementsAre("cuda:1")));
}

TEST(SaturateHost, KeepsStagesTogetherThatShareADevice) {
  const Problem problem = small_problem("5xcuda");
  const Plan alone = make_plan(problem, {{NodeId{0}}, {NodeId{1}}, {NodeId{2}}},
                               {DeviceId{3}, DeviceId{1}, DeviceId{3}}, "hand");
  const Plan plan = saturate_host(problem, alone);
  check_plan(problem.graph, &problem.profile, plan);
  EXPECT_THAT(plan.replica_names(), ElementsAre(ElementsAre("cuda:2", "cuda:0", "cuda:2")));
}

TEST(SaturateHost, NotesCopiesOfAnotherSpeed) {
  Problem problem = small_problem("3xcuda");
  problem.cluster.devices[0].speed = 2;
  const Plan plan = saturated(problem, "single");
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("replicas 0, 1 are on devices of other speeds")));
}

// Every device of every copy within its memory, by the verifier; replanning keeps the copies.
TEST(SaturateHost, MakesSoundPlansOfRandomProblems) {
  std::size_t copies = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Problem problem = random_problem(
        seed, {.num_devices = 6, .equal_links = false, .shared_memory = seed % 2 == 0});
    const Bytes need = partition::solve(problem, "single")->memory[0].predicted;
    limit_memory(problem, seed, Bytes{need.count * 2 + 100});
    for (const std::string_view method : {"single", "chain"}) {
      const auto outcome = partition::solve(problem, method, {.saturate_host = true});
      if (!outcome) continue;
      check_plan(problem.graph, &problem.profile, *outcome);
      copies += outcome->replicas.size();
      const auto again = replace_problem(*outcome, problem);
      ASSERT_TRUE(again) << seed;
      EXPECT_EQ(again->replicas, outcome->replicas) << seed;
      EXPECT_EQ(again->memory, outcome->memory) << seed;
    }
  }
  EXPECT_GT(copies, 100U);
}

// A plan that was numbered otherwise, by hand: copies follow their stages.
TEST(ReplacingTheProblem, KeepsReplicasOfStagesThatAreNumberedAnew) {
  Problem problem = small_problem("6xcuda");
  problem.graph = parse_graph(R"(kerf-graph 1.0
graph "two"
batch 4
input %x: f32[B, 4] = "args.0"
%a: f32[B, 4] = aten.relu.default(%x)
%b: f32[B, 4] = aten.tanh.default(%x)
output "a" = %a
output "b" = %b
)");
  problem.profile = estimate(problem.graph, device_kind("cpu"));
  Plan plan = make_plan(problem, {{NodeId{0}}, {NodeId{1}}}, {DeviceId{0}, DeviceId{1}}, "hand");
  plan = with_replicas(problem, plan, {{DeviceId{2}, DeviceId{3}}});
  std::swap(plan.stages[0], plan.stages[1]);
  std::swap(plan.replicas[0][0], plan.replicas[0][1]);
  const auto again = replace_problem(plan, problem);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->stages[0].device, DeviceId{0});
  EXPECT_THAT(again->replica_names(), ElementsAre(ElementsAre("cuda:2", "cuda:3")));
}

TEST(AnAssignment, BelongsToTheMethodAotAndItToAnAssignment) {
  const Problem problem = small_problem("cpu:0,cpu:1");
  const auto error_of = [&](std::string_view method, const partition::Options& options) {
    try {
      (void)partition::solve(problem, method, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of("aot", {}), HasSubstr("without an assignment"));
  EXPECT_THAT(error_of("aot", {.node_to_partition = {{"a", 0}}}), HasSubstr("without an assign"));
  EXPECT_THAT(error_of("chain", {.node_to_partition = {{"a", 0}}}), HasSubstr("for method 'cha"));
  EXPECT_THAT(error_of("even", {.partition_to_device = {{0, "cpu:0"}}}), HasSubstr("for method"));
  EXPECT_EQ(error_of("chain", {}), "no error");
}

}  // namespace
}  // namespace kerf
