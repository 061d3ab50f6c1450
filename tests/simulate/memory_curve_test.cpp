// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/memory_curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kerf/device/devices.h"
#include "kerf/device/kind.h"
#include "kerf/graph/text.h"
#include "kerf/profile/estimate.h"
#include "kerf/simulate/make_plan.h"
#include "kerf/simulate/simulate.h"
#include "tests/simulate/random_plan.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

// All nodes on one device.
Plan whole_plan(const Problem& problem) {
  std::vector<NodeId> nodes;
  for (std::size_t n = 0; n < problem.graph.num_nodes(); ++n) nodes.emplace_back(n);
  return make_plan(problem, {nodes}, {DeviceId{0}}, "hand");
}

TEST(AMemoryCurve, PeaksWhereTheEngineSaysWhenOneStageRunsOnce) {
  int compared = 0;
  int equal = 0;  // not where results, which stay when the step has ended, are the most
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Problem problem = random_problem(seed, {.num_devices = 1});
    problem.n_microbatches = 1;
    if (seed % 2 == 1) make_training(problem, seed);
    if (problem.optimizer != "sgd" && problem.training) continue;  // no memory for its step
    const Plan plan = whole_plan(problem);
    const Timeline timeline = simulate(plan);
    if (timeline.end().count == 0) continue;
    ASSERT_EQ(timeline.memory.size(), 1U);
    const DeviceMemory& memory = plan.memory[0];
    EXPECT_LE(timeline.memory[0].peak(), memory.predicted) << seed;
    equal += timeline.memory[0].peak() == memory.predicted ? 1 : 0;
    ++compared;
  }
  EXPECT_GT(compared, 90);
  EXPECT_GT(equal, 80);
}

// 1f1b keeps fewer micro-batches than fill_drain: that shows in the first stage's curve.
TEST(AMemoryCurve, ShowsHowManyMicroBatchesAScheduleKeeps) {
  int lower = 0;
  int higher = 0;  // another order may have more gradients under way at once
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Problem problem = random_problem(
        seed, {.graph = {.num_nodes = 12, .writes = false, .may_alias = false, .decorate = false},
               .num_devices = 2});
    problem.n_microbatches = 4;
    problem.batch = 4;
    make_training(problem, seed);
    std::vector<std::vector<NodeId>> halves(2);
    for (std::size_t n = 0; n < 12; ++n) halves[n / 6].emplace_back(n);
    problem.schedule = "fill_drain";
    const Plan all = make_plan(problem, halves, {DeviceId{0}, DeviceId{1}}, "hand");
    problem.schedule = "1f1b";
    const Plan few = make_plan(problem, halves, {DeviceId{0}, DeviceId{1}}, "hand");
    const auto curves = [](const Plan& plan) { return simulate(plan).memory; };
    ASSERT_EQ(curves(all).size(), curves(few).size());
    for (std::size_t d = 0; d < curves(all).size(); ++d) {
      higher += curves(few)[d].peak() > curves(all)[d].peak() ? 1 : 0;
      lower += curves(few)[d].peak() < curves(all)[d].peak() ? 1 : 0;
    }
  }
  EXPECT_GT(lower, 20);
  EXPECT_LT(higher, 10);
}

Problem random_step(std::uint64_t seed) {
  Problem problem = random_problem(seed, {.graph = {.num_nodes = 14, .decorate = false},
                                          .num_devices = 3,
                                          .shared_memory = seed % 3 == 0});
  if (seed % 2 == 0) return problem;
  make_training(problem, seed);
  static constexpr const char* kSchedules[] = {"fill_drain", "1f1b", "zero_bubble"};
  problem.schedule = kSchedules[seed / 2 % 3];
  return problem;
}

TEST(AMemoryCurve, NeverExceedsWhatThePlanPredicts) {
  int compared = 0;
  int close = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const Problem problem = random_step(seed);
    const Plan plan = random_plan(problem, seed);
    for (const MemoryCurve& curve : simulate(plan).memory) {
      const DeviceMemory& memory = plan.memory[curve.device.index()];
      const Bytes own = memory.weights + memory.gradients + memory.optimizer + memory.activations;
      EXPECT_LE(curve.peak(), own) << seed;
      EXPECT_LE(curve.peak(), memory.predicted) << seed;
      ++compared;
      close += 10 * curve.peak().count >= 9 * own.count ? 1 : 0;
    }
  }
  EXPECT_GT(compared, 1000);
  EXPECT_GT(close, compared / 2);
}

TEST(AMemoryCurve, SaysWhatTheBytesAreFor) {
  std::set<MemoryKind> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Problem problem = random_step(seed);
    const Plan plan = random_plan(problem, seed);
    for (const MemoryCurve& curve : simulate(plan).memory) {
      const DeviceMemory& memory = plan.memory[curve.device.index()];
      for (const MemoryPoint& point : curve.points) {
        ASSERT_EQ(sum(point.by_kind), point.bytes);
        EXPECT_EQ(of(point.by_kind, MemoryKind::weights), memory.weights);
        EXPECT_EQ(of(point.by_kind, MemoryKind::gradients), memory.gradients);
        EXPECT_EQ(of(point.by_kind, MemoryKind::optimizer), memory.optimizer);
        for (std::size_t k = 0; k < kNumMemoryKinds; ++k) {
          ASSERT_GE(point.by_kind[k].count, 0);
          if (point.by_kind[k].count > 0) seen.insert(static_cast<MemoryKind>(k));
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 7U);  // all but workspace, which the plan counts among the temporaries
}

// 2 x 4 floats are made on cuda:0 and read on cuda:1.
TEST(AMemoryCurve, FollowsATensorFromStageToStage) {
  Problem problem;
  problem.graph = parse_graph(R"(kerf-graph 1.0
batch 2
input %x: f32[B, 4] = "args.0"
%a: f32[B, 4] = aten.relu.default(%x)
%b: f32[B, 4] = aten.relu.default(%a)
output "y" = %b
)");
  problem.cluster = make_cluster(std::vector<std::string>{"cuda:0", "cuda:1"});
  problem.batch = 2;
  problem.profile = estimate(problem.graph, device_kind("cuda"));
  const Plan plan =
      make_plan(problem, {{NodeId{0}}, {NodeId{1}}}, {DeviceId{0}, DeviceId{1}}, "hand");
  const std::vector<MemoryCurve> curves = simulate(plan).memory;
  ASSERT_EQ(curves.size(), 2U);
  const auto kinds = [](const MemoryPoint& point) {
    return std::vector<std::int64_t>{of(point.by_kind, MemoryKind::inputs).count,
                                     of(point.by_kind, MemoryKind::temporaries).count,
                                     of(point.by_kind, MemoryKind::results).count};
  };
  using Kinds = std::vector<std::int64_t>;
  ASSERT_EQ(curves[0].points.size(), 3U);
  EXPECT_EQ(kinds(curves[0].points[0]), (Kinds{32, 32, 0}));  // it runs
  EXPECT_EQ(kinds(curves[0].points[1]), (Kinds{0, 32, 0}));   // the other has not read it yet
  EXPECT_EQ(kinds(curves[0].points[2]), (Kinds{0, 0, 0}));
  ASSERT_EQ(curves[1].points.size(), 3U);
  EXPECT_EQ(kinds(curves[1].points[0]), (Kinds{0, 0, 0}));
  EXPECT_EQ(kinds(curves[1].points[1]), (Kinds{32, 32, 0}));
  EXPECT_EQ(kinds(curves[1].points[2]), (Kinds{0, 0, 0}));  // a result, had the step not ended
}

}  // namespace
}  // namespace kerf
