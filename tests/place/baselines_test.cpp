// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What others do, as Kerf does it: PipeDream's split against all runs of its order, 2-D bin packing
// where its answer is known, METIS within memories.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kerf/base/count_up.h"
#include "kerf/base/error.h"
#include "kerf/base/infinity.h"
#include "kerf/place/binpack2d/binpack2d.h"
#include "kerf/place/metis/kway.h"
#include "kerf/place/metis/metis_split.h"
#include "kerf/place/order/line.h"
#include "kerf/place/pipedream/pipedream.h"
#include "tests/place/random_load.h"

namespace kerf {
namespace {

using place::LoadAnswer;
using place::Split;

constexpr double kRounding = 1e-7;

#ifdef NDEBUG
constexpr std::uint64_t kSeeds = 400;
#else
constexpr std::uint64_t kSeeds = 80;
#endif

void expect_sound(const LoadProblem& problem, const LoadAnswer& answer) {
  const place::LoweredLoad lowered = place::lower_load(problem);
  const place::Instance& units = lowered.instance;
  ASSERT_EQ(answer.device.size(), units.num_units());
  const Loads loads = find_loads(units, answer.device);
  EXPECT_TRUE(loads.fits);
  EXPECT_NEAR(answer.objective, loads.busiest, kRounding);
  EXPECT_TRUE(find_faults(problem, lowered.to_nodes(answer.device)).empty());
}

// PipeDream's objective of runs of the order 0, 1, 2, ...; infinity: a memory is too small, or a
// node cannot be there.
double pipedream_value(const LoadProblem& problem, const Split& device) {
  std::vector<double> compute(problem.num_devices());
  std::vector<double> bytes(problem.num_devices());
  for (std::size_t n = 0; n < device.size(); ++n) {
    const LoadNode& node = problem.nodes[n];
    if (device[n] != problem.cpu() && !node.on_accelerator) return kInfinity;
    compute[device[n]] += problem.time_on(node, device[n]);
    bytes[device[n]] += node.bytes;
  }
  double worst = 0;
  for (SlotId d{0}; d < compute.size(); ++d) {
    if (bytes[d] > problem.memory_of(d)) return kInfinity;
    worst = std::max(worst, compute[d]);
  }
  for (std::size_t border = 1; border < device.size(); ++border) {
    if (device[border] == device[border - 1]) continue;
    double crossing = 0;
    for (std::size_t n = 0; n < border; ++n) {
      const auto& readers = problem.successors[n];
      if (!readers.empty() && readers.back() >= border) crossing += problem.nodes[n].transfer;
    }
    worst = std::max(worst, crossing);
  }
  return worst;
}

// The least over all ways to give the devices, in this order, runs of the nodes.
double best_runs(const LoadProblem& problem, const Split& devices, std::size_t next, Split& split) {
  if (split.size() == problem.nodes.size()) return pipedream_value(problem, split);
  if (next == devices.size()) return kInfinity;
  const std::size_t start = split.size();
  double best = best_runs(problem, devices, next + 1, split);
  while (split.size() < problem.nodes.size()) {
    split.push_back(devices[next]);
    best = std::min(best, best_runs(problem, devices, next + 1, split));
  }
  split.resize(start);
  return best;
}

// The devices as they come, and the fastest first: both are tried.
std::vector<Split> device_orders(const LoadProblem& problem) {
  const Split given = count_up<SlotId>(problem.num_devices());
  Split fastest = given;
  if (!problem.slowness.empty()) {
    std::stable_sort(fastest.begin(), fastest.begin() + problem.num_accelerators,
                     [&](SlotId a, SlotId b) { return problem.slowness[a] < problem.slowness[b]; });
  }
  return {given, fastest};
}

bool follows(const Split& split, const Split& devices) {
  std::size_t at = 0;
  for (const SlotId device : split) {
    while (at < devices.size() && devices[at] != device) ++at;
    if (at == devices.size()) return false;
  }
  return true;
}

RandomLoadOptions variant(std::uint64_t seed) {
  RandomLoadOptions wanted;
  wanted.num_nodes = 3 + static_cast<std::uint32_t>(seed % 7);
  wanted.num_accelerators = 1 + static_cast<int>(seed % 4);
  wanted.equal = seed % 3 != 0;
  wanted.cpu = seed % 5 < 2;
  wanted.memory = seed % 2 == 0 ? 0 : 1.4;
  wanted.colours = false;
  return wanted;
}

// Numbered along the line that is cut, for as long as that changes it.
LoadProblem along_its_line(LoadProblem problem) {
  for (int round = 0; round < 10; ++round) {
    const place::Instance units = place::to_instance(problem);
    const auto lines = place::topological_lines(units);
    problem = renumber(problem, lines.front().order);
  }
  return problem;
}

TEST(Pipedream, IsTheBestOfAllRunsOfItsOrder) {
  int found = 0;
  int none = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const LoadProblem problem = along_its_line(random_load(seed, variant(seed)));
    const LoadAnswer answer = place::pipedream(place::to_instance(problem), {});
    bool possible = false;
    bool best_of_one = false;
    for (const Split& devices : device_orders(problem)) {
      Split scratch;
      const double best = best_runs(problem, devices, 0, scratch);
      possible = possible || std::isfinite(best);
      if (answer.device.empty() || !follows(answer.device, devices)) continue;
      const double value = pipedream_value(problem, answer.device);
      EXPECT_GE(value, best - kRounding);
      best_of_one = best_of_one || value <= best + kRounding;
    }
    EXPECT_EQ(possible, !answer.device.empty());
    ++(possible ? found : none);
    if (answer.device.empty()) continue;
    expect_sound(problem, answer);
    EXPECT_TRUE(best_of_one);
  }
  EXPECT_GT(found, static_cast<int>(kSeeds) / 3);
  EXPECT_GT(none, static_cast<int>(kSeeds) / 50);
}

// The first tensor is read at the very end: every border pays for it.
TEST(Pipedream, CountsLongSkipsAtEveryBorderTheyCross) {
  LoadProblem problem = chain_of(8, 2);
  EXPECT_DOUBLE_EQ(place::pipedream(place::to_instance(problem), {}).objective, 4);
  problem.successors[0].push_back(7);
  problem.nodes[0].transfer = 5;
  const Split split = place::pipedream(place::to_instance(problem), {}).device;
  // 7 and 1 with a border of 5 are worse than 4 and 4 with one of 5, which all others are no better
  // than; any run of at most 5 will do.
  EXPECT_DOUBLE_EQ(pipedream_value(problem, split), 5);
  problem.nodes[0].transfer = 20;
  EXPECT_EQ(place::pipedream(place::to_instance(problem), {}).device, Split(8, SlotId{0}));
}

TEST(Pipedream, GivesNothingWhereNoRunsFit) {
  LoadProblem problem = chain_of(8, 2);
  problem.memory = 3.5;
  EXPECT_TRUE(place::pipedream(place::to_instance(problem), {}).device.empty());
  // Large ones alternate with small ones: they would fit, but not as runs.
  problem.memory = 7;
  for (std::size_t n = 0; n < 8; ++n) problem.nodes[n].bytes = n == 3 || n == 4 ? 4 : 1;
  EXPECT_FALSE(place::pipedream(place::to_instance(problem), {}).device.empty());
  problem.nodes[2].bytes = problem.nodes[3].bytes = problem.nodes[4].bytes = 3;
  problem.memory = 6.5;
  EXPECT_TRUE(place::pipedream(place::to_instance(problem), {}).device.empty());
}

TEST(Binpack2d, SharesOutHeavyAndLightUnitsEvenly) {
  LoadProblem problem = chain_of(48, 8);
  for (std::size_t n = 0; n < 24; ++n) problem.nodes[n].accelerator_time = 6;
  const LoadAnswer answer = place::binpack2d(place::to_instance(problem), {});
  expect_sound(problem, answer);
  std::vector<int> heavy(8);
  std::vector<int> light(8);
  for (std::size_t n = 0; n < 48; ++n) ++(n < 24 ? heavy : light)[answer.device[n]];
  EXPECT_EQ(heavy, std::vector<int>(8, 3));
  EXPECT_EQ(light, std::vector<int>(8, 3));
  EXPECT_DOUBLE_EQ(answer.objective, 21);
}

TEST(Binpack2d, GivesWhatIsLeftOverToTheLightestRun) {
  LoadProblem problem = chain_of(11, 4);  // 3 + 3 + 3 + 2
  EXPECT_DOUBLE_EQ(place::binpack2d(place::to_instance(problem), {}).objective, 3);
}

TEST(Binpack2d, IsSoundAndNeverBetterThanTheBestOfAllSplits) {
  int possible = 0;
  int found = 0;
  for (std::uint64_t seed = 0; seed < kSeeds / 2; ++seed) {
    SCOPED_TRACE(seed);
    RandomLoadOptions wanted = variant(seed);
    wanted.num_nodes = std::min(wanted.num_nodes, 6U);
    wanted.num_accelerators = std::min(wanted.num_accelerators, 3);
    wanted.colours = seed % 2 == 0;
    const LoadProblem problem = random_load(seed, wanted);
    const double best = best_load(problem);
    const LoadAnswer answer = place::binpack2d(place::to_instance(problem), {});
    possible += std::isfinite(best) ? 1 : 0;
    if (answer.device.empty()) continue;
    ++found;
    expect_sound(problem, answer);
    EXPECT_GE(answer.objective, best - kRounding);
  }
  EXPECT_GE(found, 0.5 * possible);
}

// A class' runs go where there is room, not where the order would have them.
TEST(Binpack2d, MindsMemory) {
  LoadProblem problem = chain_of(8, 2);
  problem.memories = {3, 100};
  problem.memory = 100;
  problem.slowness = {1, 1};
  const LoadAnswer answer = place::binpack2d(place::to_instance(problem), {});
  ASSERT_FALSE(answer.device.empty());
  expect_sound(problem, answer);
  problem.memories = {3, 3};
  EXPECT_TRUE(place::binpack2d(place::to_instance(problem), {}).device.empty());
}

TEST(Metis, IsSoundWithinMemoriesOrSaysThatItIsNotHere) {
  const LoadProblem small = chain_of(8, 2);
  if (!place::has_metis()) {
    try {
      place::metis_split(place::to_instance(small), {});
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::missing_backend);
      EXPECT_THAT(error.what(), testing::HasSubstr("METIS"));
      EXPECT_THAT(error.what(), testing::HasSubstr("multilevel"));
    }
    return;
  }
  EXPECT_DOUBLE_EQ(place::metis_split(place::to_instance(small), {}).objective, 4);
  int possible = 0;
  int found = 0;
  for (std::uint64_t seed = 0; seed < kSeeds / 4; ++seed) {
    SCOPED_TRACE(seed);
    RandomLoadOptions wanted = variant(seed);
    wanted.num_nodes = std::min(wanted.num_nodes, 7U);
    wanted.num_accelerators = std::min(wanted.num_accelerators, 3);
    const LoadProblem problem = random_load(seed, wanted);
    const double best = best_load(problem);
    const LoadAnswer answer = place::metis_split(place::to_instance(problem), {});
    possible += std::isfinite(best) ? 1 : 0;
    if (answer.device.empty()) continue;
    ++found;
    expect_sound(problem, answer);
    EXPECT_GE(answer.objective, best - kRounding);
  }
  EXPECT_GE(found, 0.8 * possible);
}

// Everything METIS puts on the small device but what it can hold has to leave.
TEST(Metis, MovesUnitsOutOfMemoriesThatAreTooFull) {
  if (!place::has_metis()) GTEST_SKIP() << "built without METIS";
  LoadProblem problem = chain_of(40, 2);
  problem.memories = {8, 100};
  problem.memory = 100;
  problem.slowness = {1, 1};
  const LoadAnswer answer = place::metis_split(place::to_instance(problem), {});
  ASSERT_FALSE(answer.device.empty());
  expect_sound(problem, answer);
  EXPECT_EQ(std::count(answer.device.begin(), answer.device.end(), 0U), 8);
}

TEST(Metis, TakesProblemsWithoutAnyTimeOrTensors) {
  if (!place::has_metis()) GTEST_SKIP() << "built without METIS";
  LoadProblem problem = chain_of(12, 3);
  for (LoadNode& node : problem.nodes) node.accelerator_time = 0;
  expect_sound(problem, place::metis_split(place::to_instance(problem), {}));
  for (auto& readers : problem.successors) readers.clear();
  expect_sound(problem, place::metis_split(place::to_instance(problem), {}));
}

}  // namespace
}  // namespace kerf
