// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The figures of steps with many micro-batches against the event simulator and the memory engine
// over every action: the same, in next to no time.
#include "kerf/simulate/step.h"

#include <gtest/gtest.h>

#include "kerf/base/cpu_seconds.h"
#include "kerf/plan/schedule/schedule.h"
#include "kerf/simulate/make_plan.h"
#include "kerf/simulate/memory.h"
#include "kerf/simulate/simulate.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

// Any placement that can run: units of the graph's order cut anywhere, devices at random.
Plan random_plan(std::uint64_t seed, CommModel comm_model, int n_microbatches) {
  RandomProblemOptions options;
  options.graph.num_nodes = 12;
  options.num_devices = 3;
  options.equal_links = seed % 2 == 0;
  Problem problem = random_problem(seed, options);
  if (problem.graph.is_static()) n_microbatches = 1;
  problem.comm_model = comm_model;
  problem.cluster.devices[1].host = true;
  problem.n_microbatches = n_microbatches;
  problem.batch = problem.graph.is_static() ? 0 : n_microbatches;
  Rng rng(seed + 17);
  std::vector<std::vector<NodeId>> stages;
  std::vector<DeviceId> devices;
  for (std::size_t n = 0; n < problem.graph.num_nodes(); ++n) {
    if (stages.empty() || rng.below(2) == 0) {
      stages.emplace_back();
      devices.emplace_back(rng.below(problem.cluster.num_devices()));
    }
    stages.back().emplace_back(n);
  }
  return make_plan(problem, std::move(stages), std::move(devices), "test");
}

TEST(AStep, HasTheFiguresOfItsTimeline) {
  for (const CommModel comm_model :
       {CommModel::link, CommModel::host_staged, CommModel::overlapped}) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
      for (const int count : {1, 2, 7, 60, 400}) {
        const Plan plan = random_plan(seed, comm_model, count);
        const Timeline timeline = simulate(plan);
        const StepFigures step = simulate_step(plan, plan.n_microbatches);
        const double end = timeline.end().count;
        EXPECT_NEAR(step.end.count, end, 1e-9 * end) << to_string(comm_model) << ", seed " << seed;
        EXPECT_NEAR(step.bubble, timeline.bubble(), 1e-9)
            << to_string(comm_model) << ", seed " << seed;
      }
    }
  }
}

// A device that is ahead and a little slower than the next: it comes to wait after very long.
TEST(AStep, KnowsWhoComesToWaitLate) {
  for (const double slower : {1.001, 1.01, 1.3}) {
    Plan plan = random_plan(4, CommModel::link, 3000);
    ASSERT_GE(plan.num_stages(), 3U);
    for (std::size_t s = 0; s < plan.num_stages(); ++s) {
      plan.stages[s].time = Nanoseconds{100.0 / static_cast<double>(1 + s % 3)};
    }
    plan.stages.front().time = Nanoseconds{100 * slower};
    const double end = simulate(plan).end().count;
    EXPECT_NEAR(simulate_step(plan, plan.n_microbatches).end.count, end, 1e-9 * end) << slower;
  }
}

TEST(AStep, TakesNoLongerForMoreMicroBatches) {
  const Plan plan = random_plan(4, CommModel::link, 64);
  const double start = cpu_seconds();
  const StepFigures step = simulate_step(plan, 1 << 20);
  EXPECT_LT(cpu_seconds() - start, 0.2);
  EXPECT_GT(step.end, plan.step_time);
}

// Every action, and the middle left out.
TEST(MemoryOfAStep, IsThatOfEveryAction) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    RandomProblemOptions options;
    const Plan plan = random_plan(seed, CommModel::link, 700);
    if (plan.n_microbatches == 1) continue;
    ++compared;
    options.graph.num_nodes = 12;
    options.num_devices = 3;
    options.equal_links = seed % 2 == 0;
    const Problem problem = random_problem(seed, options);
    const Schedule schedule = make_schedule(plan);
    const std::vector<DeviceMemory> all =
        device_memory(problem.graph, plan.stage_of_nodes(), plan.stage_devices(), plan.cluster,
                      schedule, plan.micro_batch, problem.profile.workspaces());
    const std::vector<DeviceMemory> found = plan_memory(problem.graph, plan, problem.profile);
    for (std::size_t d = 0; d < all.size(); ++d) {
      EXPECT_EQ(found[d].activations, all[d].activations) << "seed " << seed << ", device " << d;
      EXPECT_EQ(found[d].predicted, all[d].predicted) << "seed " << seed << ", device " << d;
    }
  }
  EXPECT_GE(compared, 30);
}

}  // namespace
}  // namespace kerf
