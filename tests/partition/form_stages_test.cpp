// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// One stage per device where it is asked for, by every method; and how any placement becomes stages
// that do not wait for each other in a cycle.
#include "kerf/partition/raise/form_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "kerf/base/error.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/place/metis/kway.h"
#include "tests/support/expect_verified.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

#ifdef NDEBUG
constexpr std::uint64_t kSeeds = 150;
#else
constexpr std::uint64_t kSeeds = 30;
#endif

// Every registered method obeys, or says in so many words that it cannot.
TEST(OneStageEach, IsWhatEveryMethodGivesOrRefuses) {
  int plans = 0;
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds / 5; ++seed) {
    RandomProblemOptions wanted;
    wanted.graph.num_nodes = 12;
    wanted.num_devices = 2 + seed % 3;
    wanted.equal_links = seed % 2 == 0;
    Problem problem = random_problem(seed, wanted);
    if (seed % 3 == 0) {
      const auto alone = partition::solve(problem, "single");
      const Bytes need = alone->memory[alone->stages[0].device.index()].predicted;
      limit_memory(problem, seed, Bytes{need.count * 4 / 5});
    }
    for (const partition::Entry& entry : partition::methods()) {
      if (entry.name == "aot" || (entry.name == "metis" && !place::has_metis())) continue;
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << entry.name);
      partition::Options options;
      options.mixed = false;
      options.time_budget = 0.02;
      try {
        const auto outcome = partition::solve(problem, entry.name, options);
        if (!outcome) continue;
        ++plans;
        EXPECT_FALSE(has_mixed_stages(*outcome));
        EXPECT_FALSE(find_overflow(*outcome));
        expect_verified(problem, *outcome);
      } catch (const Error& error) {
        ++refused;
        EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
        EXPECT_THAT(error.what(), testing::HasSubstr("'" + std::string(entry.name) + "'"));
      }
    }
  }
  EXPECT_GT(plans, 10 * refused);
}

// Units of a node each.
std::vector<partition::Unit> units_of(
    std::size_t count, const std::vector<std::pair<std::size_t, std::size_t>>& edges) {
  std::vector<partition::Unit> units(count);
  for (std::size_t u = 0; u < count; ++u) units[u].nodes = {NodeId{u}};
  for (const auto& [from, to] : edges) units[to].before.push_back(from);
  for (partition::Unit& unit : units) std::sort(unit.before.begin(), unit.before.end());
  return units;
}

partition::Stages stages_of(const std::vector<partition::Unit>& units,
                            const std::vector<std::size_t>& devices, bool short_ones = false) {
  std::vector<std::size_t> order(units.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<DeviceId> device;
  for (const std::size_t d : devices) device.emplace_back(d);
  return short_ones ? partition::form_short_stages(units, order, device)
                    : partition::form_stages(units, order, device);
}

// Every unit once, on its device, and stages that can run one after the other.
void expect_stages_in_order(const std::vector<partition::Unit>& units,
                            const std::vector<std::size_t>& devices,
                            const partition::Stages& stages) {
  ASSERT_EQ(stages.nodes.size(), stages.devices.size());
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> stage_of(units.size(), kNone);
  for (std::size_t s = 0; s < stages.nodes.size(); ++s) {
    EXPECT_FALSE(stages.nodes[s].empty());
    for (const NodeId node : stages.nodes[s]) {
      EXPECT_EQ(stage_of[node.index()], kNone);
      stage_of[node.index()] = s;
      EXPECT_EQ(stages.devices[s].index(), devices[node.index()]);
    }
  }
  std::vector<std::set<std::size_t>> before(stages.nodes.size());
  for (std::size_t u = 0; u < units.size(); ++u) {
    ASSERT_NE(stage_of[u], kNone);
    for (const std::size_t earlier : units[u].before) {
      if (stage_of[earlier] != stage_of[u]) before[stage_of[u]].insert(stage_of[earlier]);
    }
  }
  std::vector<bool> done(before.size());
  for (std::size_t round = 0; round < before.size(); ++round) {
    for (std::size_t s = 0; s < before.size(); ++s) {
      done[s] = done[s] || std::all_of(before[s].begin(), before[s].end(),
                                       [&](std::size_t each) { return done[each]; });
    }
  }
  EXPECT_TRUE(std::all_of(done.begin(), done.end(), [](bool each) { return each; }));
}

TEST(FormStages, FindsThePathThatLeavesEarlyAndComesBackLate) {
  const auto units = units_of(5, {{0, 1}, {1, 3}, {3, 4}, {0, 2}, {2, 4}});
  expect_stages_in_order(units, {0, 1, 0, 1, 0}, stages_of(units, {0, 1, 0, 1, 0}));
}

TEST(FormStages, PartsStagesThatWouldWaitForEachOtherThoughEachIsConvex) {
  const auto units = units_of(4, {{0, 2}, {0, 3}, {1, 2}, {1, 3}});
  const partition::Stages stages = stages_of(units, {0, 1, 1, 0});
  expect_stages_in_order(units, {0, 1, 1, 0}, stages);
  EXPECT_GT(stages.nodes.size(), 2U);
}

TEST(FormStages, CutsAChainWhereItsDeviceChanges) {
  const auto units = units_of(3, {{0, 1}, {1, 2}});
  const partition::Stages stages = stages_of(units, {0, 1, 0});
  EXPECT_EQ(stages.nodes.size(), 3U);
  EXPECT_EQ(stages.devices, (std::vector<DeviceId>{DeviceId{0}, DeviceId{1}, DeviceId{0}}));
}

TEST(FormStages, JoinsHeadAndTailOfADiamondOnlyWhereNoPathLeavesThem) {
  const auto diamond = units_of(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  const partition::Stages apart = stages_of(diamond, {0, 1, 1, 0});
  expect_stages_in_order(diamond, {0, 1, 1, 0}, apart);
  EXPECT_EQ(apart.nodes.size(), 3U);
  EXPECT_EQ(stages_of(diamond, {0, 0, 0, 0}).nodes.size(), 1U);
  // The arms lead elsewhere: nothing comes back to the tail.
  const auto fork = units_of(4, {{0, 1}, {0, 2}, {0, 3}});
  EXPECT_EQ(stages_of(fork, {0, 1, 1, 0}).nodes.size(), 2U);
}

TEST(FormStages, IsAcyclicForEveryPlacementOfRandomGraphs) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const std::size_t count = 2 + rng.below(30);
    const std::uint64_t density = 2 + rng.below(8);
    std::vector<std::pair<std::size_t, std::size_t>> edges;
    for (std::size_t to = 1; to < count; ++to) {
      for (std::size_t from = 0; from < to; ++from) {
        if (rng.below(density) == 0) edges.emplace_back(from, to);
      }
    }
    const auto units = units_of(count, edges);
    std::vector<std::size_t> devices;
    const std::uint64_t num_devices = 1 + rng.below(5);
    for (std::size_t u = 0; u < count; ++u) devices.push_back(rng.below(num_devices));
    const partition::Stages few = stages_of(units, devices);
    expect_stages_in_order(units, devices, few);
    expect_stages_in_order(units, devices, stages_of(units, devices, true));
    if (num_devices == 1) {
      EXPECT_EQ(few.nodes.size(), 1U);
    }
  }
}

}  // namespace
}  // namespace kerf
