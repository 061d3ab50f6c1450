// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "kerf/base/error.h"
#include "kerf/base/interrupt.h"
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

// Several calls that are under way at once, as a stream of batches has them.
class CallsUnderWay : public testing::Test {
 protected:
  static constexpr int kCalls = 6;
  static constexpr int kMicroBatches = 2;

  std::vector<std::unique_ptr<kerf::Run>> start_all(Executor& executor, Turn& turn) {
    std::vector<std::unique_ptr<kerf::Run>> runs;
    for (FakeRun& own : backend_runs) {
      runs.push_back(executor.start(turn, own, kMicroBatches, /*record=*/true));
    }
    return runs;
  }

  Graph graph = chain_graph(6, 1);
  Plan plan = hand_plan(graph, {{"n0", "n1"}, {"n2", "n3"}, {"n4", "n5"}}, {0, 1, 2},
                        {"cpu:0", "cpu:1", "cpu:2"}, kMicroBatches);
  FakeBackend backend{plan};
  std::vector<FakeRun> backend_runs = std::vector<FakeRun>(kCalls, FakeRun(3));
};

TEST_F(CallsUnderWay, EnterTheFirstStageBeforeTheFirstOneLeavesTheLast) {
  Executor executor(graph, plan, backend);
  std::atomic<int> entered{0};
  std::atomic<bool> overlapped{false};
  backend.call_at(StageId(0), [&](const Task&) { ++entered; });
  backend.call_at(StageId(2), [&](const Task& task) {
    // The first call's last task: it ends when another call has been in stage 0, or too late.
    for (int look = 0; look < 5000 && task.microbatch == 1 && entered <= kMicroBatches; ++look) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    overlapped = overlapped || entered > kMicroBatches;
  });
  Turn turn(executor.turns());
  const auto runs = start_all(executor, turn);
  for (const auto& run : runs) EXPECT_EQ(executor.finish(*run).parcels.size(), 2U);
  EXPECT_TRUE(overlapped);
}

TEST_F(CallsUnderWay, AreEachWhatOneCallIs) {
  Executor executor(graph, plan, backend);
  FakeRun alone(3);
  const std::vector<Event> expected = executor.run(alone, kMicroBatches, true).events;
  Turn turn(executor.turns());
  for (const auto& run : start_all(executor, turn)) {
    const std::vector<Event> events = executor.finish(*run).events;
    ASSERT_EQ(events.size(), expected.size());
    for (std::size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i].stage, expected[i].stage);
      EXPECT_EQ(events[i].end.count, expected[i].end.count);
    }
  }
}

TEST_F(CallsUnderWay, FailAndStopOneByOne) {
  Executor executor(graph, plan, backend);
  Turn turn(executor.turns());
  std::vector<std::unique_ptr<kerf::Run>> runs;
  for (int i = 0; i < kCalls; ++i) {
    // Told before it is started, and done before the next one is told: the third fails.
    backend.fail_at(i == 2 ? StageId(1) : StageId{}, 0);
    runs.push_back(
        executor.start(turn, backend_runs[static_cast<std::size_t>(i)], kMicroBatches, true));
    while (!runs.back()->wait_for(1)) {
    }
  }
  runs.push_back(executor.start(turn, backend_runs[0], kMicroBatches));
  executor.stop(*runs.back());
  EXPECT_THROW(executor.finish(*runs.back()), Interrupted);
  for (int i = 0; i < kCalls; ++i) {
    kerf::Run& run = *runs[static_cast<std::size_t>(i)];
    if (i == 2) {
      EXPECT_THROW(executor.finish(run), Error);
    } else {
      EXPECT_EQ(executor.finish(run).parcels.size(), 2U);
    }
  }
}

TEST(ALooseTurn, PassesToWhoeverAsksOnceItIsOver) {
  Turns turns;
  std::atomic<bool> over{false};
  auto loose = std::make_unique<Turn>(turns, [&] { return over.load(); });
  EXPECT_TRUE(loose->is_held());
  std::atomic<bool> had{false};
  std::thread other([&] {
    const Turn turn(turns);
    had = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(had);
  over = true;
  other.join();
  EXPECT_TRUE(had);
  EXPECT_FALSE(loose->is_held());
  loose.reset();
  const Turn turn(turns);  // nothing is left of it
  EXPECT_TRUE(turn.is_held());
}

TEST(ALooseTurn, IsNotWaitedForByItsOwnWork) {
  Turns turns;
  Turn loose(turns, [] { return false; });
  const InsideTurn inside(loose);
  EXPECT_THROW(Turn turn(turns), Error);
}

TEST(ALooseTurn, MayOutliveTheTurnThatItLiesIn) {
  Turns outer_turns;
  Turns turns;
  std::unique_ptr<Turn> loose;
  {
    const Turn outer(outer_turns);
    loose = std::make_unique<Turn>(turns, [] { return false; });
  }
  EXPECT_TRUE(loose->is_held());
  loose.reset();
  const Turn turn(turns);
  EXPECT_TRUE(turn.is_held());
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
