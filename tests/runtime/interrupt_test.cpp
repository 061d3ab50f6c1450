// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs that end before they are done, and calls inside calls.
#include "kerf/base/interrupt.h"

#include <gtest/gtest.h>

#include <barrier>
#include <stdexcept>
#include <thread>

#include "kerf/base/error.h"
#include "kerf/graph/text.h"
#include "kerf/runtime/executor.h"
#include "kerf/runtime/fake_backend.h"
#include "tests/runtime/hand_plan.h"

namespace kerf {
namespace {

struct Stop : std::runtime_error {
  Stop() : std::runtime_error("enough") {}
};

const char* const kChain = R"(kerf-graph 1.0
batch 8
input %x: f32[B, 64] = "args.0"
%a: f32[B, 64] = aten.relu.default(%x)
%b: f32[B, 64] = aten.relu.default(%a)
output "y" = %b
)";

// Two stages, on one device or two.
struct Pair {
  explicit Pair(std::size_t num_devices = 2, bool on_caller = false)
      : graph(parse_graph(kChain)),
        plan(num_devices == 2 ? hand_plan(graph, {{"a"}, {"b"}}, {0, 1}, {"cpu:0", "cpu:1"}, 4)
                              : hand_plan(graph, {{"a"}, {"b"}}, {0, 0}, {"cpu:0"}, 4)),
        backend(plan, on_caller),
        executor(graph, plan, backend) {}

  std::size_t run() {
    FakeRun run(plan.cluster.num_devices());
    return executor.run(run, 4).parcels.size();
  }
  void when_in(int stage, const std::function<void(int)>& block) {
    backend.call_at(StageId(stage), [block](const Task& task) { block(task.microbatch); });
  }

  Graph graph;
  Plan plan;
  FakeBackend backend;
  Executor executor;
};

[[noreturn]] void work_for_ever() {
  for (;;) poll_interrupt();
}

TEST(AnInterruptedRun, EndsWithWhatThePollThrewAndTheExecutorCanBeUsedAgain) {
  for (const int busy : {0, 1}) {
    for (const std::size_t num_devices : {1U, 2U}) {
      for (const bool on_caller : {false, true}) {
        Pair pair(num_devices, on_caller && num_devices == 1);
        pair.when_in(busy, [](int) { work_for_ever(); });
        {
          const PollScope scope([] { throw Stop(); });
          EXPECT_THROW(pair.run(), Stop);
        }
        pair.when_in(busy, [](int) {});
        EXPECT_EQ(pair.run(), 4U);
      }
    }
  }
}

TEST(AFailedStage, EndsTheWorkOfTheOthers) {
  Pair pair;
  pair.when_in(0, [](int microbatch) {
    if (microbatch == 1) work_for_ever();
  });
  pair.when_in(1, [](int) { throw std::out_of_range("of the block"); });
  EXPECT_THROW(pair.run(), std::out_of_range);
}

TEST(ACallInsideItsOwnCall, IsRefused) {
  for (const bool on_caller : {false, true}) {
    Pair pair(1, on_caller);
    pair.when_in(1, [&](int) { pair.run(); });
    try {
      pair.run();
      FAIL() << "was not refused";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("from inside that call"), std::string::npos);
    }
  }
}

TEST(ACallInsideItsOwnCall, IsRefusedThroughOthersToo) {
  Pair outer, middle;
  outer.when_in(0, [&](int) { middle.run(); });
  middle.when_in(1, [&](int) { outer.run(); });
  EXPECT_THROW(outer.run(), Error);
  middle.when_in(1, [](int) {});
  EXPECT_EQ(outer.run(), 4U);
}

TEST(ACallDuringThePoll, IsRefused) {
  Pair pair;
  pair.when_in(0, [](int) { work_for_ever(); });
  const PollScope scope([&] { pair.run(); });  // a signal handler that calls the pipeline
  EXPECT_THROW(pair.run(), Error);
}

TEST(ACallInsideACallOfAnother, IsServed) {
  Pair outer, inner;
  for (const int stage : {0, 1}) outer.when_in(stage, [&](int) { EXPECT_EQ(inner.run(), 4U); });
  EXPECT_EQ(outer.run(), 4U);
}

TEST(TwoCallsThatWaitForEachOther, AreNotStuckOneIsRefused) {
  Pair p, q;
  std::barrier both_inside(2);
  std::atomic<int> entered{0};
  const auto call = [&](Pair& other) {
    return [&](int) {
      if (entered++ >= 2) return;  // the first of each
      both_inside.arrive_and_wait();
      other.run();
    };
  };
  p.when_in(0, call(q));
  q.when_in(0, call(p));
  std::atomic<int> refused{0};
  const auto attempt = [&](Pair& pair) {
    try {
      pair.run();
    } catch (const Error&) {
      ++refused;
    }
  };
  std::thread other([&] { attempt(q); });
  attempt(p);
  other.join();
  EXPECT_EQ(refused, 1);
}

TEST(AWaitForATurn, CanBeInterrupted) {
  Pair pair;
  std::atomic<bool> inside{false}, release{false};
  pair.when_in(0, [&](int) {
    inside = true;
    while (!release) std::this_thread::yield();
  });
  std::thread holder([&] { pair.run(); });
  while (!inside) std::this_thread::yield();
  {
    const PollScope scope([] { throw Stop(); });
    EXPECT_THROW(pair.run(), Stop);
  }
  release = true;
  holder.join();
  EXPECT_EQ(pair.run(), 4U);
}

TEST(ATurnThatIsBetterHadAlone, IsGivenUpWhereWaitingWouldNeverEnd) {
  Turns turns;
  const Turn outer(turns, Turn::Cycle::go_on);
  EXPECT_TRUE(outer.is_held());
  const Turn inner(turns, Turn::Cycle::go_on);
  EXPECT_FALSE(inner.is_held());
}

// One holds the lock and waits for the pipeline; the other runs in the pipeline and waits for the
// lock: it gives way, whoever came first.
TEST(ATurnThatIsBetterHadAlone, GivesWayToOneThatMust) {
  Turns lock, pipeline;
  std::barrier both_hold(2);
  std::thread other([&] {
    const Turn running(pipeline);
    both_hold.arrive_and_wait();
    const Turn drawing(lock, Turn::Cycle::go_on);
  });
  {
    const Turn drawing(lock, Turn::Cycle::go_on);
    both_hold.arrive_and_wait();
    const Turn calling(pipeline);
    EXPECT_TRUE(calling.is_held());
  }
  other.join();
}

}  // namespace
}  // namespace kerf
