// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Training steps on the virtual clock: what the simulator predicts, and what faults leave behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "kerf/base/error.h"
#include "kerf/base/rng.h"
#include "kerf/runtime/executor.h"
#include "kerf/runtime/fake_backend.h"
#include "kerf/simulate/make_plan.h"
#include "kerf/simulate/simulate.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

constexpr const char* kSchedules[] = {"fill_drain", "1f1b", "interleaved_1f1b", "zero_bubble"};

struct TrainingCase {
  Problem problem;
  Plan plan;
};

// Contiguous stages on devices of any order, several on some. Nothing where the graph is one piece.
std::optional<TrainingCase> random_case(std::uint64_t seed) {
  Rng rng(seed + 1);
  TrainingCase out{random_problem(seed), {}};
  out.problem.comm_model = CommModel::link;
  for (Link& link : out.problem.cluster.links) link.shared = false;
  make_training(out.problem, seed);
  out.problem.schedule = kSchedules[rng.below(4)];
  std::vector<std::vector<NodeId>> stages;
  std::vector<DeviceId> devices;
  std::size_t n = 0;
  for (const std::size_t end : pieces_of(out.problem.graph)) {
    if (stages.empty() || rng.below(3) != 0) {
      stages.emplace_back();
      devices.emplace_back(rng.below(out.problem.cluster.num_devices()));
    }
    for (; n < end; ++n) stages.back().emplace_back(n);
  }
  if (stages.size() < 2) return std::nullopt;
  out.plan = make_plan(out.problem, std::move(stages), std::move(devices), "random");
  return out;
}

// Plans do not know that the loss waits for results of several stages.
bool is_as_planned(const Executor& executor) {
  const auto& programs = executor.programs();
  return std::all_of(programs.begin(), programs.end(), [&](const Program& program) {
    return program.results_in.empty() &&
           program.has_backward == executor.plan().stage(program.stage).has_backward;
  });
}

std::vector<Event> of_device(const std::vector<Event>& events, DeviceId device) {
  std::vector<Event> out;
  std::copy_if(events.begin(), events.end(), std::back_inserter(out),
               [&](const Event& event) { return event.device == device; });
  return out;
}

void expect_equal(const std::vector<Event>& measured, const std::vector<Event>& expected,
                  std::uint64_t seed) {
  ASSERT_EQ(measured.size(), expected.size()) << "seed " << seed;
  for (std::size_t i = 0; i < measured.size(); ++i) {
    EXPECT_EQ(measured[i].kind, expected[i].kind) << "seed " << seed;
    EXPECT_EQ(measured[i].stage, expected[i].stage) << "seed " << seed;
    EXPECT_EQ(measured[i].phase, expected[i].phase) << "seed " << seed;
    EXPECT_EQ(measured[i].microbatch, expected[i].microbatch) << "seed " << seed;
    EXPECT_EQ(measured[i].tensor, expected[i].tensor) << "seed " << seed;
    EXPECT_NEAR(measured[i].start.count, expected[i].start.count, 1e-6)
        << "seed " << seed << " event " << i << " " << to_string(measured[i].kind) << " "
        << to_string(measured[i].phase) << " stage " << measured[i].stage.index()
        << " of micro-batch " << measured[i].microbatch;
    EXPECT_NEAR(measured[i].end.count, expected[i].end.count, 1e-6) << "seed " << seed;
  }
}

TEST(ATrainingStep, OnAVirtualClockDoesWhatTheSimulatorPredicts) {
  std::set<std::string> schedules;
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const std::optional<TrainingCase> made = random_case(seed);
    if (!made) continue;
    FakeBackend backend(made->plan);
    Executor executor(made->problem.graph, made->plan, backend);
    FakeRun run(made->plan.cluster.num_devices());
    Turn turn(executor.turns());
    const auto result = executor.train(turn, run, made->plan.n_microbatches, /*record=*/true);
    if (!is_as_planned(executor)) continue;
    ++compared;
    schedules.insert(made->plan.schedule);
    const Timeline predicted = simulate(made->plan);
    for (std::size_t d = 0; d < made->plan.cluster.num_devices(); ++d) {
      expect_equal(of_device(result.events, DeviceId(d)), of_device(predicted.events, DeviceId(d)),
                   seed);
    }
  }
  EXPECT_GT(compared, 40);
  EXPECT_EQ(schedules.size(), 4U);
}

TEST(ATrainingStep, ThatFailsAnywhereIsOneErrorAndTheNextOneRuns) {
  int injected = 0;
  for (std::uint64_t seed = 0; injected < 10000; ++seed) {
    const std::optional<TrainingCase> made = random_case(seed % 300);
    if (!made) continue;
    Rng rng(seed + 99);
    FakeBackend backend(made->plan);
    Executor executor(made->problem.graph, made->plan, backend);
    const int m = made->plan.n_microbatches;
    for (int i = 0; i < 50; ++i) {
      const Program& program = executor.programs()[rng.below(executor.programs().size())];
      const Phase phase =
          program.has_backward && rng.below(2) == 0 ? Phase::backward : Phase::forward;
      backend.fail_at(program.stage, static_cast<int>(rng.below(static_cast<std::uint64_t>(m))),
                      phase);
      FakeRun failing(made->plan.cluster.num_devices());
      Turn turn(executor.turns());
      try {
        executor.train(turn, failing, m);
        ADD_FAILURE() << "seed " << seed << ": did not fail";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::run_failed);
      }
      ++injected;
    }
    backend.fail_at(StageId{}, 0);
    FakeRun again(made->plan.cluster.num_devices());
    Turn turn(executor.turns());
    EXPECT_EQ(executor.train(turn, again, m).parcels.size(), static_cast<std::size_t>(m));
  }
}

TEST(APlanOfInference, DoesNotTrain) {
  const std::optional<TrainingCase> made = random_case(3);
  ASSERT_TRUE(made);
  Plan plan = made->plan;
  plan.training = false;
  FakeBackend backend(plan);
  Executor executor(made->problem.graph, plan, backend);
  FakeRun run(plan.cluster.num_devices());
  Turn turn(executor.turns());
  EXPECT_THROW(executor.train(turn, run, 1), Error);
}

}  // namespace
}  // namespace kerf
