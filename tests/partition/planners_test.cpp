// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Every planner on small random problems: verified, never better than the best of all splits
// (tests/support/best_of_all.h: an enumeration that goes through make_plan and nothing of the
// planners'), equal to it where it says so, the same on any number of threads; no bound above it.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "kerf/base/infinity.h"
#include "kerf/partition/lower/units.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/raise/form_stages.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/partition/search/methods.h"
#include "kerf/place/metis/kway.h"
#include "kerf/place/metis/metis_starts.h"
#include "tests/support/best_of_all.h"
#include "tests/support/expect_verified.h"
#include "tests/support/random_problem.h"
#include "tests/support/strong_bounds.h"

namespace kerf {
namespace {

constexpr double kRounding = 1e-9;

struct Case {
  std::size_t num_devices = 2;
  bool equal_speeds = true;
  bool equal_links = true;
  bool shared_memory = false;
  bool limited = false;
  CommModel comm_model = CommModel::link;
  bool given_transfers = false;
};

Problem make_problem(std::uint64_t seed, const Case& wanted) {
  RandomProblemOptions options;
  options.graph.num_nodes = 7;
  options.num_devices = wanted.num_devices;
  options.equal_links = wanted.equal_links;
  options.shared_memory = wanted.shared_memory;
  Problem problem = random_problem(seed, options);
  problem.comm_model = wanted.comm_model;
  for (std::size_t d = 0; d < problem.cluster.num_devices(); ++d) {
    if (wanted.equal_speeds) problem.cluster.devices[d].speed = 1;
    // A host among accelerators, for host_staged.
    if (wanted.comm_model == CommModel::host_staged && d == 1)
      problem.cluster.devices[d].host = true;
  }
  if (wanted.given_transfers) give_transfers(problem, seed);
  if (wanted.limited) {
    const auto alone = partition::solve(problem, "single");
    const Bytes need = alone->memory[alone->stages[0].device.index()].predicted;
    limit_memory(problem, seed, Bytes{need.count * 3 / 4});
  }
  return problem;
}

struct Tally {
  int feasible = 0;
  int solved = 0;  // `auto` found the best
  int proved = 0;  // and said so
};

void check_methods(std::uint64_t seed, const Problem& problem, Tally& tally) {
  const std::optional<double> best = best_of_all(problem);
  for (const LowerBound& bound : strong_bounds(problem)) {
    if (best) {
      EXPECT_LE(bound.value, *best * (1 + kRounding)) << seed << ' ' << bound.name;
    }
  }
  for (const std::string method : {"exact", "auto", "refine", "ideals", "chain"}) {
    partition::Options options;
    options.time_budget = method == "exact" ? 20 : 0.02;
    const auto outcome = partition::solve(problem, method, options);
    if (!outcome) {
      // The planners that know all splits must not give up where there is one.
      if (method == "exact") {
        EXPECT_FALSE(best.has_value()) << seed;
      }
      continue;
    }
    ASSERT_TRUE(best.has_value()) << seed << ' ' << method;
    expect_verified(problem, *outcome, seed);
    const double value = outcome->objective_value();
    EXPECT_GE(value, *best * (1 - kRounding)) << seed << ' ' << method;
    EXPECT_LE(outcome->lower_bound.value, *best * (1 + kRounding)) << seed << ' ' << method;
    if (method == "exact") {
      EXPECT_NEAR(value, *best, *best * 1e-6) << seed;
      EXPECT_LE(outcome->gap(), 1e-5) << seed;
      ++tally.feasible;
    }
    if (method == "auto" && value <= *best * (1 + 1e-6)) {
      ++tally.solved;
      tally.proved += outcome->gap() <= 1e-5 ? 1 : 0;
    }
  }
}

Tally check_case(const Case& wanted, std::uint64_t seeds) {
  Tally tally;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    check_methods(seed, make_problem(seed, wanted), tally);
  }
  EXPECT_GT(tally.feasible, static_cast<int>(seeds) / 4);
#ifdef NDEBUG  // with checks on, the clock stops searches of so small a budget
  EXPECT_GE(tally.solved, tally.feasible * 9 / 10);
#endif
  return tally;
}

TEST(Planners, AgreeWithAllSplitsOnEqualDevices) {
  const Tally tally = check_case({.num_devices = 3}, 30);
#ifdef NDEBUG
  EXPECT_GE(tally.proved, tally.feasible * 9 / 10);
#else
  EXPECT_GT(tally.proved, 0);
#endif
}

TEST(Planners, AgreeWithAllSplitsOnUnequalDevices) {
  check_case({.num_devices = 3, .equal_speeds = false}, 30);
}

TEST(Planners, AgreeWithAllSplitsOnUnequalLinks) {
  check_case({.num_devices = 3, .equal_speeds = false, .equal_links = false}, 20);
}

TEST(Planners, AgreeWithAllSplitsWhenMemoryIsShort) {
  check_case({.num_devices = 3, .limited = true}, 40);
  check_case({.num_devices = 3, .equal_speeds = false, .shared_memory = true, .limited = true}, 40);
}

TEST(Planners, AgreeWithAllSplitsUnderEveryCommunicationModel) {
  check_case({.num_devices = 3, .comm_model = CommModel::host_staged}, 25);
  check_case({.num_devices = 3, .equal_speeds = false, .comm_model = CommModel::overlapped}, 25);
}

TEST(Planners, AgreeWithAllSplitsWhereTransferTimesAreGiven) {
  for (const CommModel model : {CommModel::link, CommModel::host_staged, CommModel::overlapped}) {
    check_case({.num_devices = 3, .comm_model = model, .given_transfers = true}, 15);
  }
  check_case(
      {.num_devices = 3, .equal_speeds = false, .equal_links = false, .given_transfers = true}, 15);
}

TEST(Planners, MinimiseEveryObjective) {
  for (const Objective objective : {Objective::latency, Objective::step, Objective::memory}) {
    int solved = 0;
    int feasible = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      Problem problem = make_problem(seed, {.num_devices = 2, .equal_speeds = false});
      problem.objective = objective;
      const std::optional<double> best = best_of_all(problem);
      ASSERT_TRUE(best.has_value());
      for (const LowerBound& bound : strong_bounds(problem)) {
        EXPECT_LE(bound.value, *best * (1 + kRounding)) << seed << ' ' << bound.name;
      }
      for (const std::string method : {"exact", "auto", "refine"}) {
        partition::Options options;
        options.time_budget = method == "exact" ? 20 : 0.1;
        const auto outcome = partition::solve(problem, method, options);
        ASSERT_TRUE(static_cast<bool>(outcome)) << seed;
        expect_verified(problem, *outcome, seed);
        // Other methods may form a device's stages in other ways still.
        EXPECT_GE(outcome->objective_value(), outcome->lower_bound.value * (1 - kRounding));
        if (method == "exact") {
          EXPECT_NEAR(outcome->objective_value(), *best, *best * 1e-9) << seed;
        }
        if (method != "auto") continue;
        ++feasible;
        solved += outcome->objective_value() <= *best * (1 + 1e-6) ? 1 : 0;
      }
    }
#ifdef NDEBUG
    EXPECT_GE(solved, feasible * 8 / 10) << to_string(objective);
#else
    EXPECT_GE(solved, feasible / 2) << to_string(objective);
#endif
  }
}

TEST(Planners, GiveTheSamePlanOnAnyNumberOfThreads) {
  int compared = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    RandomProblemOptions options;
    options.graph.num_nodes = 60;
    options.num_devices = 4;
    const Problem problem = random_problem(seed, options);
    for (const std::string method : {"ideals", "refine", "auto"}) {
      partition::Options one;
      one.time_budget = 0.2;
      partition::Options two = one;
      two.threads = 2;
      const auto a = partition::solve(problem, method, one);
      const auto b = partition::solve(problem, method, two);
      ASSERT_TRUE(a && b);
      if (a->timed_out || b->timed_out) continue;  // and say so
      EXPECT_EQ(*a, *b) << method << ' ' << seed;
      ++compared;
    }
  }
  EXPECT_GT(compared, 12) << "of 18";
}

TEST(FormStages, MakesNoCyclesWhereDevicesWaitForEachOther) {
  // The holes of the level construction of older tools: paths that leave and come back, and pairs
  // of convex stages that wait for each other.
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    RandomProblemOptions options;
    options.graph.num_nodes = 12;
    const Problem problem = random_problem(seed, options);
    const auto unit_of = partition::indivisible_units(problem.graph);
    const auto units = partition::collect_units(problem, unit_of);
    const auto order = partition::topological_order(units);
    Rng rng(seed);
    std::vector<DeviceId> device;
    for (std::size_t u = 0; u < units.size(); ++u) device.emplace_back(rng.below(3));
    for (const auto form : {partition::form_stages, partition::form_short_stages}) {
      auto stages = form(units, order, device);
      const Plan plan = make_plan(problem, stages.nodes, stages.devices, "random");
      for (const Stage& stage : plan.stages) {
        for (const NodeId node : stage.nodes) {
          EXPECT_EQ(stage.device, device[unit_of[node.index()]]);
        }
      }
    }
  }
}

TEST(MetisStarts, PlaceEveryUnitAndBalanceWhatTheyPlace) {
  if (!place::has_metis()) GTEST_SKIP() << "built without METIS";
  place::Devices devices;
  devices.cpu = SlotId{3};
  devices.num_devices = 4;
  devices.slowness.assign(3, 1);
  devices.memory.assign(4, kInfinity);
  place::InstanceBuilder builder(devices);
  constexpr std::uint32_t kUnits = 60;
  for (std::uint32_t u = 0; u < kUnits; ++u) {
    builder.add_unit({.accelerator_time = 1, .cpu_time = 10, .on_accelerator = u != 5});
  }
  for (UnitId u{0}; u + 1 < kUnits; ++u) builder.add_net(1, u, {{UnitId{u + 1}}});
  const place::Instance problem = std::move(builder).build();
  const auto starts = place::metis_starts(problem, 1);
  ASSERT_EQ(starts.size(), 3U);
  EXPECT_EQ(starts, place::metis_starts(problem, 1));
  for (const auto& start : starts) {
    ASSERT_EQ(start.size(), kUnits);
    EXPECT_EQ(start[5], problem.cpu);
  }
  std::vector<int> count(4);
  int cut = 0;
  for (std::uint32_t u = 0; u < kUnits; ++u) {
    ++count[starts[0][u]];
    cut += u > 0 && starts[0][u] != starts[0][u - 1] ? 1 : 0;
  }
  EXPECT_LE(*std::max_element(count.begin(), count.end()), 22);
  EXPECT_LE(cut, 6) << "a chain in three pieces, and the unit on the CPU";
}

}  // namespace
}  // namespace kerf
