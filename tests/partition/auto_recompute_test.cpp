// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// recompute "auto" against what a user could ask for instead: nothing, everything, the same blocks.
#include <gtest/gtest.h>

#include <algorithm>

#include "kerf/partition/registry/solve.h"
#include "kerf/plan/recompute.h"
#include "kerf/plan/schedule/schedule.h"
#include "tests/support/expect_verified.h"
#include "tests/support/layered_problem.h"
#include "tests/support/limited_problem.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

const partition::Options kOptions{.time_budget = 0.03};

Problem with_recompute(Problem problem, std::string mode, std::vector<std::string> names) {
  problem.recompute = std::move(mode);
  set_recomputed(problem, std::move(names));
  return problem;
}

// Each device has a share of what the fastest plan needs on the fullest: in the order of seeds from
// what everything computed again hardly leaves to all.
void limit_training(Problem& problem, std::uint64_t seed) {
  const auto fastest = partition::solve(with_recompute(problem, "none", {}), "chain", kOptions);
  ASSERT_TRUE(fastest);
  Bytes most;
  for (const DeviceMemory& memory : fastest->memory) most = std::max(most, memory.predicted);
  const double share = 0.55 + 0.05 * static_cast<double>(seed % 10);
  limit_every_device(problem, static_cast<double>(most.count) * share);
  // One that is shorter than the others.
  if (seed % 3 == 0) {
    Bytes& memory = problem.cluster.devices[seed % problem.cluster.num_devices()].memory;
    memory = Bytes{memory.count * 9 / 10};
  }
}

Problem random_limited(std::uint64_t seed) {
  Problem problem = random_problem(
      seed, {.graph = {.num_nodes = 14, .writes = false, .may_alias = false, .decorate = false},
             .num_devices = 2 + seed % 2,
             .equal_links = seed % 2 == 0});
  make_training(problem, seed);
  const auto kinds = schedule_kinds();
  problem.schedule = kinds[seed % kinds.size()].name;
  limit_training(problem, seed);
  return problem;
}

Problem layered_limited(std::uint64_t seed) {
  Rng rng(seed);
  std::vector<int> widths;
  for (std::uint64_t l = 0; l < 4 + seed % 3; ++l) widths.push_back(32 << rng.below(4));
  const auto kinds = schedule_kinds();
  Problem problem = layered_problem(widths, 2 + seed % 3, static_cast<int>(4 + seed % 5),
                                    std::string(kinds[seed % kinds.size()].name));
  limit_training(problem, seed);
  return problem;
}

struct Counts {
  int plans = 0;
  int recomputed = 0;
};

void expect_never_worse(const Problem& problem, const std::string& method, std::uint64_t seed,
                        Counts& counts) {
  const auto found = partition::solve(with_recompute(problem, "auto", {}), method, kOptions);
  const auto expect = [&](const std::string& mode, std::vector<std::string> names) {
    const auto other =
        partition::solve(with_recompute(problem, mode, std::move(names)), method, kOptions);
    if (!other) return;
    ASSERT_TRUE(found) << seed << " " << method << ": " << mode << " fits";
    EXPECT_LE(found->objective_value(), other->objective_value() * (1 + 1e-6))
        << seed << " " << method << " against " << mode;
  };
  expect("none", {});
  expect("all", recomputed_by(problem.graph, "all"));
  if (!found) return;
  expect_verified(problem, *found, seed);
  expect("list", found->recomputed);
  ++counts.plans;
  counts.recomputed += found->recomputed.empty() ? 0 : 1;
}

TEST(RecomputeAuto, IsNeverWorseThanNoneAllOrItsOwnChoice) {
  Counts counts;
  for (std::uint64_t seed = 5; seed < 9; ++seed) {
    const Problem problem = seed % 2 == 0 ? random_limited(seed) : layered_limited(seed);
    for (const std::string& method : partition::comparable_methods()) {
      expect_never_worse(problem, method, seed, counts);
    }
  }
  EXPECT_GT(counts.plans, 25);
  EXPECT_GE(counts.recomputed, 4);
}

// Methods that take next to no time, on more problems.
TEST(RecomputeAuto, IsNeverWorseWithChain) {
  Counts counts;
  for (std::uint64_t seed = 10; seed < 40; ++seed) {
    for (const char* method : {"chain", "even"}) {
      expect_never_worse(random_limited(seed), method, seed, counts);
      expect_never_worse(layered_limited(seed), method, seed, counts);
    }
  }
  EXPECT_GT(counts.recomputed, 20);
}

}  // namespace
}  // namespace kerf
