// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Mixed-Pipe against all splits of tiny problems, where no contiguous split fits, and with a given
// number of blocks; the lines it cuts; one stage per device for every solver.
#include "kerf/place/mixed_pipe/mixed_pipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "kerf/base/error.h"
#include "kerf/place/cut/blocks.h"
#include "kerf/place/metis/kway.h"
#include "kerf/place/mixed_pipe/boundary.h"
#include "kerf/place/mixed_pipe/one_stage_each.h"
#include "kerf/place/order/line.h"
#include "kerf/place/pipedream/pipedream.h"
#include "kerf/place/portfolio/split_methods.h"
#include "tests/place/random_load.h"
#include "tests/support/ids.h"

namespace kerf {
namespace {

using place::LoadAnswer;
using place::LoadOptions;

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
  const place::LoweredLoad lowered = place::lower_load(problem);
  const place::Instance& units = lowered.instance;
  ASSERT_EQ(answer.device.size(), units.num_units());
  const Loads loads = find_loads(units, answer.device);
  EXPECT_TRUE(loads.fits);
  EXPECT_NEAR(answer.objective, loads.busiest, kRounding * (1 + loads.busiest));
  EXPECT_TRUE(find_faults(problem, lowered.to_nodes(answer.device)).empty());
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
    const LoadAnswer answer = place::mixed_pipe(place::to_instance(problem), quick());
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
      options.method.mixed_pipe.stages = stages;
      const LoadAnswer answer = place::mixed_pipe(place::to_instance(problem), options);
      ASSERT_FALSE(answer.device.empty());
      expect_sound(problem, answer);
      EXPECT_LE(devices_used(answer), static_cast<std::size_t>(stages));
    }
  }
}

TEST(MixedPipe, TakesMoreBlocksThanUnits) {
  LoadOptions options = quick();
  options.method.mixed_pipe.stages = 1000;
  const LoadProblem problem = random_load(1, {.num_nodes = 5});
  expect_sound(problem, place::mixed_pipe(place::to_instance(problem), options));
}

// The original took the lightest block first: 2 and 6.
TEST(MixedPipe, TakesTheLongestBlockFirst) {
  for (const std::vector<double>& times :
       {std::vector<double>{1, 1, 1, 1, 4}, {1, 1, 4, 1, 1}, {1, 4, 1, 1, 1}}) {
    const LoadAnswer answer = place::mixed_pipe(place::to_instance(chain_of(times, 2)), quick());
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
  EXPECT_TRUE(place::pipedream(place::to_instance(problem), {}).device.empty());
  LoadOptions options;
  options.clock = 60;
  options.time_budget = 0.2;
  const LoadAnswer answer = place::mixed_pipe(place::to_instance(problem), options);
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
    const LoadAnswer once = place::mixed_pipe(place::to_instance(problem), options);
    EXPECT_EQ(place::mixed_pipe(place::to_instance(problem), options).device, once.device);
    options.threads = 2;
    EXPECT_EQ(place::mixed_pipe(place::to_instance(problem), options).device, once.device);
    EXPECT_FALSE(once.truncated);
  }
}

TEST(MixedPipe, SaysNothingWhereNothingFits) {
  LoadProblem problem = encoder_decoder();
  problem.memory = 20;
  EXPECT_TRUE(place::mixed_pipe(place::to_instance(problem), quick()).device.empty());
}

TEST(MixedPipe, CutsLinesIntoRunsInTheirOrder) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const LoadProblem problem = random_load(seed, {.num_nodes = 20, .memory = 1});
    const place::Instance units = place::to_instance(problem);
    const place::Instance& flat = units;
    for (const place::Line& line : place::topological_lines(flat)) {
      place::Order sorted = line.order;
      std::sort(sorted.begin(), sorted.end());
      for (UnitId u{0}; u < sorted.size(); ++u) ASSERT_EQ(sorted[u], u);
      ASSERT_EQ(sorted.size(), units.num_units());
      EXPECT_NEAR(line.weight_before.back(), 1, kRounding);
      for (const std::size_t count : {0U, 1U, 3U, 7U, 20U, 50U}) {
        const std::vector<UnitId> block = place::cut_blocks(line, count);
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
    const place::Instance flat = place::to_instance(problem);
    for (const auto& line : place::topological_lines(flat)) {
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
    const place::LoweredLoad lowered = place::lower_load(problem);
    const place::Instance& units = lowered.instance;
    const place::Instance& flat = units;
    Rng rng(seed);
    place::Split device;
    for (UnitId u{0}; u < units.num_units(); ++u) {
      const SlotId accelerator{rng.below(units.cpu)};
      device.push_back(units.on_accelerator[u] != 0 ? accelerator : units.cpu);
    }
    const Loads before = find_loads(units, device);
    if (!before.fits) continue;
    place::SplitState state(flat, device);
    place::improve_borders(flat, state, 1'000'000, StopClock(60));
    const Loads after = find_loads(units, state.devices());
    EXPECT_TRUE(after.fits);
    EXPECT_LE(after.busiest, before.busiest * (1 + kRounding));
    EXPECT_TRUE(find_faults(problem, lowered.to_nodes(state.devices())).empty());
    better += after.busiest < before.busiest ? 1 : 0;
  }
  EXPECT_GT(better, static_cast<int>(kSeeds) / 3);
}

TEST(OneStageEach, GivesDevicesThatDoNotWaitForEachOther) {
  std::vector<const place::SplitMethod& (*)()> splits{
      place::mixed_pipe_split, place::multilevel_split, place::acyclic_split_method,
      place::pipedream_split, place::binpack2d_split};
  if (place::has_metis()) splits.push_back(place::metis_split_method);
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
    for (const auto& split : splits) {
      const LoadAnswer answer =
          place::solve(split().steps[0], place::to_instance(problem), options);
      if (answer.device.empty()) continue;
      ++found;
      expect_sound(problem, answer);
      EXPECT_TRUE(devices_are_acyclic(problem, answer.device)) << &split - splits.data();
    }
  }
  EXPECT_GT(found, static_cast<int>(kSeeds) * 2);
}

TEST(OneStageEach, KeepsASplitThatHasThemAlready) {
  const LoadProblem problem = chain_of({2, 1, 3, 3, 1, 2}, 3);
  const place::Split device = slots({2, 2, 0, 1, 1, 1});
  const LoadAnswer answer = place::one_stage_each(place::to_instance(problem), device, quick());
  ASSERT_FALSE(answer.device.empty());
  EXPECT_LE(answer.objective, 6);
  EXPECT_TRUE(devices_are_acyclic(problem, answer.device));
}

}  // namespace
}  // namespace kerf
