// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What is said where no plan fits: what would, and whether that is proved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/partition/registry/solve.h"
#include "kerf/plan/recompute.h"
#include "tests/support/layered_problem.h"
#include "tests/support/limited_problem.h"

namespace kerf {
namespace {

const partition::Options kShortTime{.time_budget = 0.03};

Problem with_blocks(Problem problem, std::string mode, std::vector<std::string> names) {
  problem.recompute = std::move(mode);
  set_recomputed(problem, std::move(names));
  return problem;
}

// Each device has less than the fastest plan needs there.
Problem short_of_memory(Problem problem, double share) {
  const Plan fastest = *partition::solve(problem, "chain", kShortTime);
  for (std::size_t d = 0; d < problem.cluster.num_devices(); ++d) {
    Device& device = problem.cluster.devices[d];
    const auto needed = static_cast<double>(fastest.memory[d].predicted.count);
    device.memory = Bytes{static_cast<std::int64_t>(needed * share)};
    device.memory_limited = true;
  }
  return problem;
}

Problem follow(Problem problem, const Setting& setting) {
  if (setting.name == "n_microbatches") {
    problem.n_microbatches = std::stoi(setting.value);
    problem.profile = estimate(problem.graph, device_kind("cuda"), problem.micro_batch(), true);
  }
  if (setting.name == "schedule") problem.schedule = setting.value;
  if (setting.name == "optimizer") problem.optimizer = setting.value;
  if (setting.name != "recompute") return problem;
  std::vector<std::string> layers = recomputed_by(problem.graph, setting.value);
  return with_blocks(std::move(problem), setting.value, std::move(layers));
}

// What is recommended does what it is recommended for, and the graph allows it.
TEST(Advice, CanBeFollowed) {
  int followed = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Problem problem = layered_problem(std::vector<int>(4, 64 << seed % 3), 2, 3,
                                      seed % 2 == 0 ? "1f1b" : "fill_drain");
    // A path of the model that a micro-batch of 100 samples or fewer would not have taken.
    GraphData data = problem.graph.data();
    data.conditions.push_back({Expr::parse("100"), Relation::less, Expr::parse("B"), "m.py:5"});
    data.example_batch = 256;
    problem.graph = Graph::freeze(std::move(data));
    problem.profile = estimate(problem.graph, device_kind("cuda"), problem.micro_batch(), true);
    problem = short_of_memory(std::move(problem), 0.7 + 0.01 * static_cast<double>(seed));
    const auto outcome = partition::solve(problem, "chain", kShortTime);
    if (outcome) continue;
    const Advice& advice = outcome.reason().advice;
    for (const Setting& setting : advice.fits) {
      const Problem other = follow(problem, setting);
      EXPECT_GT(other.batch / other.n_microbatches, 100);
      EXPECT_TRUE(partition::solve(other, "chain", kShortTime))
          << seed << " " << setting.str(Wording::python);
      followed += setting.name == "n_microbatches" ? 1 : 0;
    }
  }
  EXPECT_GT(followed, 3);
}

// Advice is no more than what it takes: 48 would fit, too.
TEST(Advice, AsksForTheFewestMicroBatchesThatFit) {
  const Problem problem =
      short_of_memory(layered_problem(std::vector<int>(4, 256), 2, 4, "1f1b"), 0.93);
  const auto outcome = partition::solve(problem, "chain");
  ASSERT_FALSE(outcome);
  const std::string message = outcome.reason().message();
  EXPECT_THAT(message, ::testing::HasSubstr("n_microbatches=8"));
  EXPECT_THAT(message, ::testing::HasSubstr("this is not proved impossible"));
  const std::string options = outcome.reason().message(Wording::command_line);
  EXPECT_THAT(options, ::testing::HasSubstr("--n-microbatches 8"));
  EXPECT_THAT(options, ::testing::Not(::testing::HasSubstr("='")));
}

TEST(Advice, NamesWhatItIsAboutBeforeItRefersToIt) {
  Advice advice;
  advice.not_enough = {{"schedule", "1f1b"}, {"n_microbatches", "8", false}};
  advice.together_tried = advice.together_fits = true;
  EXPECT_EQ(advice.str(Wording::python),
            "not enough: schedule='1f1b', n_microbatches=8; what would fit: all of these together");
  advice.together_fits = false;
  advice.least = Bytes{100};
  EXPECT_EQ(advice.str(Wording::command_line),
            "not enough: --schedule 1f1b, --n-microbatches 8, nor all of these together (100 B "
            "short at best); add a device or memory");
}

TEST(AnInfeasibleProblem, IsOnlyProvedSoWhereItIs) {
  Problem problem = layered_problem(std::vector<int>(4, 256), 2, 4, "1f1b");
  limit_every_device(problem, 1000);
  for (const char* method : {"chain", "refine", "even"}) {
    const auto outcome = partition::solve(problem, method, kShortTime);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.reason().caveat, "") << method << ": the weights are larger";
  }
  const auto alone = partition::solve(layered_problem(std::vector<int>(4, 256), 2, 4, "1f1b"));
  limit_every_device(problem, static_cast<double>(alone->memory[1].predicted.count) * 0.7);
  for (const char* recompute : {"none", "auto"}) {
    for (const char* method : {"chain", "refine", "ideals", "mixed_pipe", "even"}) {
      const auto outcome =
          partition::solve(with_blocks(problem, recompute, {}), method, kShortTime);
      if (outcome) continue;
      EXPECT_THAT(outcome.reason().message(), ::testing::HasSubstr("not proved impossible"))
          << method;
    }
  }
}

}  // namespace
}  // namespace kerf
