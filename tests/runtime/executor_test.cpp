// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/executor.h"

#include <gtest/gtest.h>

#include <thread>

#include "kerf/base/error.h"
#include "kerf/base/rng.h"
#include "kerf/graph/text.h"
#include "kerf/runtime/fake_backend.h"
#include "kerf/simulate/simulate.h"
#include "tests/runtime/hand_plan.h"

namespace kerf {
namespace {

// A chain with skips: node n uses n-1 and, now and then, an older one.
Graph chain_graph(int length, std::uint64_t seed) {
  Rng rng(seed);
  std::string text = "kerf-graph 1.0\nbatch 8\ninput %x: f32[B, 64] = \"args.0\"\n";
  std::string previous = "x";
  for (int n = 0; n < length; ++n) {
    const std::string name = "n" + std::to_string(n);
    const bool skip = n > 2 && rng.below(3) == 0;
    const std::string other =
        skip ? "n" + std::to_string(rng.below(static_cast<std::uint64_t>(n))) : previous;
    text += "%" + name + ": f32[B, 64] = aten.add.Tensor(%" + previous + ", %" + other + ")\n";
    previous = name;
  }
  return parse_graph(text + "output \"y\" = %" + previous + "\n");
}

Plan random_plan(const Graph& graph, Rng& rng, int n_microbatches) {
  const std::size_t num_stages = 1 + rng.below(std::min<std::size_t>(5, graph.num_nodes()));
  std::vector<std::vector<std::string>> stages(num_stages);
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    stages[n * num_stages / graph.num_nodes()].push_back(graph.node(NodeId(n)).name);
  }
  std::vector<int> devices;
  for (std::size_t s = 0; s < num_stages; ++s) devices.push_back(static_cast<int>(rng.below(3)));
  Plan plan = hand_plan(graph, stages, devices, {"cpu:0", "cpu:1", "cpu:2"}, n_microbatches);
  for (Stage& stage : plan.stages) stage.time = {static_cast<double>(1 + rng.below(50))};
  return plan;
}

std::vector<Event> of_device(const std::vector<Event>& events, DeviceId device) {
  std::vector<Event> out;
  for (const Event& event : events) {
    if (event.device == device) out.push_back(event);
  }
  return out;
}

TEST(AnExecutor, OnAVirtualClockDoesWhatTheSimulatorPredicts) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    const Graph graph = chain_graph(3 + static_cast<int>(rng.below(12)), seed);
    const int m = 1 + static_cast<int>(rng.below(6));
    const Plan plan = random_plan(graph, rng, m);
    FakeBackend backend(plan);
    Executor executor(graph, plan, backend);
    FakeRun run(plan.cluster.num_devices());
    const auto result = executor.run(run, m, /*record=*/true);
    const Timeline predicted = simulate(plan);
    for (std::size_t d = 0; d < plan.cluster.num_devices(); ++d) {
      const auto measured = of_device(result.events, DeviceId(d));
      const auto expected = of_device(predicted.events, DeviceId(d));
      ASSERT_EQ(measured.size(), expected.size()) << "seed " << seed;
      for (std::size_t i = 0; i < measured.size(); ++i) {
        EXPECT_EQ(measured[i].kind, expected[i].kind) << "seed " << seed;
        EXPECT_EQ(measured[i].stage, expected[i].stage) << "seed " << seed;
        EXPECT_EQ(measured[i].microbatch, expected[i].microbatch) << "seed " << seed;
        EXPECT_NEAR(measured[i].start.count, expected[i].start.count, 1e-6) << "seed " << seed;
        EXPECT_NEAR(measured[i].end.count, expected[i].end.count, 1e-6) << "seed " << seed;
      }
    }
  }
}

TEST(AnExecutor, GivesTheResultsOfEveryMicroBatch) {
  const Graph graph = chain_graph(6, 1);
  const Plan plan = hand_plan(graph, {{"n0", "n1"}, {"n2", "n3"}, {"n4", "n5"}}, {0, 1, 0},
                              {"cpu:0", "cpu:1"}, 4);
  FakeBackend backend(plan);
  Executor executor(graph, plan, backend);
  FakeRun run(2);
  const auto result = executor.run(run, 4);
  ASSERT_EQ(result.parcels.size(), 4U);
  const ValueId last = *graph.outputs()[0].leaf.find<ValueId>();
  for (const auto& parcels : result.parcels) EXPECT_NE(parcels.at(last.index()), nullptr);
  EXPECT_TRUE(result.events.empty());
}

TEST(AFailingStage, StopsTheOthersAndTheExecutorCanBeUsedAgain) {
  const Graph graph = chain_graph(6, 1);
  const Plan plan = hand_plan(graph, {{"n0", "n1"}, {"n2", "n3"}, {"n4", "n5"}}, {0, 1, 2},
                              {"cpu:0", "cpu:1", "cpu:2"}, 8);
  FakeBackend backend(plan);
  Executor executor(graph, plan, backend);
  for (int s = 0; s < 3; ++s) {
    for (const int m : {0, 3, 7}) {
      FakeRun run(3);
      backend.fail_at(StageId(s), m);
      try {
        executor.run(run, 8);
        FAIL() << "did not fail";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::run_failed);
      }
      backend.fail_at(StageId{}, 0);
      FakeRun again(3);
      EXPECT_EQ(executor.run(again, 8).parcels.size(), 8U);
    }
  }
}

TEST(AnExecutor, ServesCallersOneAfterTheOther) {
  const Graph graph = chain_graph(6, 1);
  const Plan plan = hand_plan(graph, {{"n0", "n1"}, {"n2", "n3"}, {"n4", "n5"}}, {0, 1, 0},
                              {"cpu:0", "cpu:1"}, 4);
  FakeBackend backend(plan);
  Executor executor(graph, plan, backend);
  std::vector<std::thread> callers;
  std::atomic<int> done{0};
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        FakeRun run(2);
        if (executor.run(run, 4).parcels.size() == 4) ++done;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done, 80);
}

TEST(AnExecutor, RefusesNoMicroBatches) {
  const Graph graph = chain_graph(3, 1);
  const Plan plan = hand_plan(graph, {{"n0", "n1", "n2"}}, {0}, {"cpu:0"});
  FakeBackend backend(plan);
  Executor executor(graph, plan, backend);
  FakeRun run(1);
  EXPECT_THROW(executor.run(run, 0), Error);
}

}  // namespace
}  // namespace kerf
