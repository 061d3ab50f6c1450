// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Mixed-Pipe against all splits of tiny problems, where no contiguous split fits, and with a given
// number of blocks; the lines it cuts; one stage a device for every family and every method; and
// how any placement becomes stages that do not wait for each other in a cycle.
#include "kerf/partition/mixed_pipe/mixed_pipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "kerf/base/error.h"
#include "kerf/partition/finish.h"
#include "kerf/partition/load/families.h"
#include "kerf/partition/metis/kway.h"
#include "kerf/partition/mixed_pipe/boundary.h"
#include "kerf/partition/mixed_pipe/line.h"
#include "kerf/partition/mixed_pipe/one_stage_each.h"
#include "kerf/partition/partition.h"
#include "kerf/partition/pipedream/pipedream.h"
#include "kerf/partition/split/form_stages.h"
#include "kerf/verify/verify_plan.h"
#include "tests/partition/random_load.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

using partition::LoadAnswer;
using partition::LoadOptions;

constexpr double kRounding = 1e-9;

#ifdef NDEBUG
constexpr std::uint64_t kSeeds = 150;
#else
constexpr std::uint64_t kSeeds = 30;
#endif

LoadOptions quick() {
  LoadOptions options;
  options.time_budget = 0.005;
  options.clock = 60;
  return options;
}

void expect_sound(const LoadProblem& problem, const LoadAnswer& answer) {
  const UnitProblem units = to_units(problem);
  ASSERT_EQ(answer.device.size(), units.units.size());
  const Loads loads = find_loads(units, answer.device);
  EXPECT_TRUE(loads.fits);
  EXPECT_NEAR(answer.objective, loads.busiest, kRounding * (1 + loads.busiest));
  EXPECT_TRUE(find_faults(problem, to_nodes(units, answer.device)).empty());
}

std::size_t devices_used(const LoadAnswer& answer) {
  return std::set<std::uint32_t>(answer.device.begin(), answer.device.end()).size();
}

RandomLoadOptions variant(std::uint64_t seed) {
  RandomLoadOptions wanted;
  wanted.num_nodes = 4 + static_cast<std::uint32_t>(seed % 4);
  wanted.num_accelerators = 2 + static_cast<int>(seed % 2);
  wanted.equal = seed % 3 != 0;
  wanted.cpu = seed % 5 == 0;
  wanted.memory = seed % 4 < 2 ? 0 : 1.3;
  return wanted;
}

TEST(MixedPipe, IsSoundAndNeverBetterThanTheBestOfAllSplits) {
  int possible = 0;
  int found = 0;
  int near = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const LoadProblem problem = random_load(seed, variant(seed));
    const LoadAnswer answer = partition::mixed_pipe(problem, quick());
    const double best = best_load(problem);
    possible += std::isfinite(best) ? 1 : 0;
    if (answer.device.empty()) continue;
    expect_sound(problem, answer);
    EXPECT_GE(answer.objective, best * (1 - kRounding));
    ++found;
    near += answer.objective <= 1.1 * best + kRounding ? 1 : 0;
  }
  EXPECT_GE(found, 0.95 * possible);
  EXPECT_GE(near, 0.8 * possible);
}

// A device holds no more pieces than there were blocks: without a border nothing moves.
TEST(MixedPipe, KeepsToTheNumberOfBlocksItIsGiven) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    RandomLoadOptions wanted;
    wanted.num_nodes = 12;
    wanted.num_accelerators = 4;
    const LoadProblem problem = random_load(seed, wanted);
    for (const int stages : {1, 2, 3}) {
      LoadOptions options = quick();
      options.stages = stages;
      const LoadAnswer answer = partition::mixed_pipe(problem, options);
      ASSERT_FALSE(answer.device.empty());
      expect_sound(problem, answer);
      EXPECT_LE(devices_used(answer), static_cast<std::size_t>(stages));
    }
  }
}

TEST(MixedPipe, TakesMoreBlocksThanUnits) {
  LoadOptions options = quick();
  options.stages = 1000;
  const LoadProblem problem = random_load(1, {.num_nodes = 5});
  expect_sound(problem, partition::mixed_pipe(problem, options));
}

LoadProblem chain_of(const std::vector<double>& times, int devices) {
  LoadProblem problem;
  problem.num_accelerators = devices;
  problem.num_cpus = 0;
  problem.memory = 1e6;
  for (std::uint32_t n = 0; n < times.size(); ++n) {
    LoadNode node;
    node.id = n;
    node.accelerator_time = times[n];
    node.bytes = 1;
    problem.nodes.push_back(node);
    problem.successors.emplace_back();
    if (n > 0) problem.successors[n - 1].push_back(n);
  }
  return problem;
}

// The original took the lightest block first: 2 and 6.
TEST(MixedPipe, TakesTheLongestBlockFirst) {
  for (const std::vector<double>& times :
       {std::vector<double>{1, 1, 1, 1, 4}, {1, 1, 4, 1, 1}, {1, 4, 1, 1, 1}}) {
    const LoadAnswer answer = partition::mixed_pipe(chain_of(times, 2), quick());
    EXPECT_DOUBLE_EQ(answer.objective, 4);
  }
}

// Blocks that take long, then blocks that are large: by runs one of both is uneven.
LoadProblem encoder_decoder() {
  constexpr std::uint32_t kBlocks = 24;
  std::vector<double> times(kBlocks, 6);
  times.resize(2 * kBlocks, 1);
  LoadProblem problem = chain_of(times, 8);
  for (std::uint32_t n = 0; n < 2 * kBlocks; ++n) {
    problem.nodes[n].bytes = n < kBlocks ? 3 : 4;
    problem.nodes[n].transfer = 0.01;
  }
  // Every decoder block reads what the encoder made.
  for (std::uint32_t n = kBlocks + 1; n < 2 * kBlocks; ++n) {
    problem.successors[kBlocks - 1].push_back(n);
  }
  problem.memory = 1.05 * 168 / 8;
  return problem;
}

TEST(MixedPipe, FitsWhereNoContiguousSplitDoesAndIsEvenInTimeAndMemory) {
  const LoadProblem problem = encoder_decoder();
  EXPECT_TRUE(partition::pipedream(problem, {}).device.empty());
  LoadOptions options;
  options.clock = 60;
  options.time_budget = 0.2;
  const LoadAnswer answer = partition::mixed_pipe(problem, options);
  ASSERT_FALSE(answer.device.empty());
  expect_sound(problem, answer);
  const Loads loads = find_loads(problem, answer.device);
  const double bytes = *std::max_element(loads.bytes.begin(), loads.bytes.end());
  EXPECT_LE(answer.objective, 1.05 * 21);
  EXPECT_LE(bytes, 1.05 * 21);
}

TEST(MixedPipe, IsTheSameForASeedAndOnAnyNumberOfThreads) {
  for (const LoadProblem& problem : {encoder_decoder(), random_load(3, {.num_nodes = 30})}) {
    LoadOptions options = quick();
    options.seed = 7;
    const LoadAnswer once = partition::mixed_pipe(problem, options);
    EXPECT_EQ(partition::mixed_pipe(problem, options).device, once.device);
    options.threads = 2;
    EXPECT_EQ(partition::mixed_pipe(problem, options).device, once.device);
    EXPECT_FALSE(once.truncated);
  }
}

TEST(MixedPipe, SaysNothingWhereNothingFits) {
  LoadProblem problem = encoder_decoder();
  problem.memory = 20;
  EXPECT_TRUE(partition::mixed_pipe(problem, quick()).device.empty());
}

TEST(MixedPipe, CutsLinesIntoRunsInTheirOrder) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const LoadProblem problem = random_load(seed, {.num_nodes = 20, .memory = 1});
    const UnitProblem units = to_units(problem);
    const partition::FlatUnits flat(units);
    for (const partition::Line& line : partition::topological_lines(problem, flat)) {
      std::vector<std::uint32_t> sorted = line.order;
      std::sort(sorted.begin(), sorted.end());
      for (std::uint32_t u = 0; u < sorted.size(); ++u) ASSERT_EQ(sorted[u], u);
      ASSERT_EQ(sorted.size(), units.units.size());
      EXPECT_NEAR(line.weight_before.back(), 1, kRounding);
      for (const std::size_t count : {0U, 1U, 3U, 7U, 20U, 50U}) {
        const std::vector<std::uint32_t> block = partition::cut_blocks(line, count);
        EXPECT_EQ(block[line.order.front()], 0U);
        for (std::size_t i = 1; i < line.order.size(); ++i) {
          const std::uint32_t step = block[line.order[i]] - block[line.order[i - 1]];
          ASSERT_LE(step, 1U);
        }
        EXPECT_LT(block[line.order.back()], std::max<std::size_t>(count, 1));
      }
    }
  }
}

TEST(MixedPipe, LinesAreTopologicalAndCountWhatCrosses) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const LoadProblem problem =
        random_load(seed, {.num_nodes = 12, .colours = false, .shuffled = seed % 2 == 0});
    const partition::FlatUnits flat(to_units(problem));
    for (const auto& line : partition::topological_lines(problem, flat)) {
      std::vector<std::size_t> place(line.order.size());
      for (std::size_t i = 0; i < place.size(); ++i) place[line.order[i]] = i;
      std::vector<double> crossing(place.size() + 1);
      for (std::size_t n = 0; n < place.size(); ++n) {
        std::size_t last = place[n];
        for (const std::uint32_t to : problem.successors[n]) {
          EXPECT_LT(place[n], place[to]);
          last = std::max(last, place[to]);
        }
        for (std::size_t p = place[n] + 1; p <= last; ++p) crossing[p] += problem.nodes[n].transfer;
      }
      for (std::size_t p = 0; p < crossing.size(); ++p) {
        EXPECT_NEAR(line.crossing[p], crossing[p], kRounding) << p;
      }
    }
  }
}

TEST(ImproveBorders, NeverMakesTheBusiestDeviceBusierNorAMemoryTooFull) {
  int better = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    RandomLoadOptions wanted = variant(seed);
    wanted.num_nodes = 14;
    const LoadProblem problem = random_load(seed, wanted);
    const UnitProblem units = to_units(problem);
    const partition::FlatUnits flat(units);
    Rng rng(seed);
    std::vector<std::uint32_t> device;
    for (const LoadUnit& unit : units.units) {
      const auto accelerator =
          static_cast<std::uint32_t>(rng.below(static_cast<std::uint64_t>(units.num_accelerators)));
      device.push_back(unit.on_accelerator ? accelerator : units.cpu());
    }
    const Loads before = find_loads(units, device);
    if (!before.fits) continue;
    partition::SplitState state(flat, device);
    partition::improve_borders(flat, state, 1'000'000, partition::StopClock(60));
    const Loads after = find_loads(units, state.devices());
    EXPECT_TRUE(after.fits);
    EXPECT_LE(after.busiest, before.busiest * (1 + kRounding));
    EXPECT_TRUE(find_faults(problem, to_nodes(units, state.devices())).empty());
    better += after.busiest < before.busiest ? 1 : 0;
  }
  EXPECT_GT(better, static_cast<int>(kSeeds) / 3);
}

TEST(OneStageEach, GivesDevicesThatDoNotWaitForEachOther) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    RandomLoadOptions wanted = variant(seed);
    wanted.num_nodes = 10;
    wanted.colours = false;
    wanted.shuffled = seed % 2 == 0;
    LoadProblem problem = random_load(seed, wanted);
    // What only the CPU can run is there, wherever in the order that is.
    for (LoadNode& node : problem.nodes) node.on_accelerator = true;
    LoadOptions options = quick();
    options.mixed = false;
    for (const std::string_view family : partition::family_names()) {
      if (family == "metis" && !partition::has_metis()) continue;
      const LoadAnswer answer = partition::plan_family(family, problem, options);
      if (answer.device.empty()) continue;
      ++found;
      expect_sound(problem, answer);
      EXPECT_TRUE(devices_are_acyclic(problem, answer.device)) << family;
    }
  }
  EXPECT_GT(found, static_cast<int>(kSeeds) * 2);
}

TEST(OneStageEach, KeepsASplitThatHasThemAlready) {
  const LoadProblem problem = chain_of({2, 1, 3, 3, 1, 2}, 3);
  const std::vector<std::uint32_t> device = {2, 2, 0, 1, 1, 1};
  const LoadAnswer answer = partition::one_stage_each(problem, device, quick());
  ASSERT_FALSE(answer.device.empty());
  EXPECT_LE(answer.objective, 6);
  EXPECT_TRUE(devices_are_acyclic(problem, answer.device));
}

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
      const auto alone = plan(problem, "single");
      const Bytes need = alone->memory[alone->stages[0].device.index()].predicted;
      limit_memory(problem, seed, Bytes{need.count * 4 / 5});
    }
    for (const partition::Entry& entry : partition::methods()) {
      if (entry.name == "aot" || (entry.name == "metis" && !partition::has_metis())) continue;
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << entry.name);
      partition::Options options;
      options.mixed = false;
      options.time_budget = 0.02;
      try {
        const auto outcome = plan(problem, entry.name, options);
        if (!outcome) continue;
        ++plans;
        EXPECT_FALSE(has_mixed_stages(*outcome));
        EXPECT_FALSE(find_overflow(*outcome));
        for (const Violation& violation : verify_plan(problem.graph, &problem.profile, *outcome)) {
          ADD_FAILURE() << violation.rule << ": " << violation.message;
        }
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
