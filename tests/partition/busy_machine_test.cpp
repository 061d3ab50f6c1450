// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The same seed gives the same bytes of plan.json while others use the machine: budgets are
// counted.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "kerf/partition/registry/registry.h"
#include "kerf/partition/registry/solve.h"
#include "tests/support/limited_problem.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

// Twice as many threads as there are cores.
class Load {
 public:
  Load() {
    const unsigned count = 2 * std::max(1U, std::thread::hardware_concurrency());
    for (unsigned t = 0; t < count; ++t) {
      threads_.emplace_back([this] {
        while (!stop_.load(std::memory_order_relaxed)) ++spins_;
      });
    }
  }
  ~Load() { stop_ = true; }

 private:
  std::atomic<bool> stop_ = false;
  std::atomic<std::uint64_t> spins_ = 0;
  std::vector<std::jthread> threads_;
};

struct Answer {
  std::string bytes;
  bool timed_out = false;
};

std::vector<Answer> plan_all(const std::vector<Problem>& problems) {
  std::vector<Answer> answers;
  for (const Problem& problem : problems) {
    for (const std::string& method : partition::comparable_methods()) {
      partition::Options options;
      options.time_budget = 0.05;
      const bool can = problem.objective == Objective::throughput ||
                       partition::find_method(method)->any_objective;
      if (!can) continue;
      const auto outcome = partition::solve(problem, method, options);
      answers.push_back(outcome ? Answer{print_plan(*outcome), outcome->timed_out}
                                : Answer{outcome.reason().message(), false});
    }
  }
  return answers;
}

TEST(ABusyMachine, GetsTheSameBytes) {
  std::vector<Problem> problems;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    RandomProblemOptions options;
    options.graph.num_nodes = 15 * seed * seed;
    options.num_devices = 2 + seed;
    options.equal_links = seed % 2 == 0;
    problems.push_back(random_problem(seed, options));
    if (seed % 2 == 0)
      limit_every_device(problems.back(), 0.6 * bytes_on_one_device(problems.back()));
    problems.push_back(random_problem(seed, options));
    problems.back().objective = seed % 2 == 0 ? Objective::step : Objective::latency;
  }
  const std::vector<Answer> alone = plan_all(problems);
  std::vector<Answer> busy;
  {
    const Load load;
    busy = plan_all(problems);
  }
  ASSERT_EQ(alone.size(), busy.size());
  std::size_t compared = 0;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    if (alone[i].timed_out || busy[i].timed_out) continue;  // they say so
    EXPECT_EQ(alone[i].bytes, busy[i].bytes);
    ++compared;
  }
  EXPECT_GT(compared, alone.size() * 9 / 10);
}

}  // namespace
}  // namespace kerf
