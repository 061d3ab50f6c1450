// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Repeats in sequences written by hand, and the coarse units made of them: runs of the order that
// respect glue, cut alike wherever a block comes again; borders opened; users of one weight joined.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "benchmarks/scale/families.h"
#include "kerf/device/devices.h"
#include "kerf/graph/text.h"
#include "kerf/partition/lower/coarse_units.h"
#include "kerf/partition/lower/contiguous.h"
#include "kerf/partition/lower/shared_weights.h"
#include "kerf/partition/lower/units.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/registry/solve.h"
#include "tests/support/limited_problem.h"
#include "tests/support/random_problem.h"

namespace kerf {
namespace {

using partition::find_repeats;
using partition::Repeat;
using Elements = std::vector<std::uint64_t>;
using UnitOf = std::vector<std::size_t>;

Elements block(std::uint64_t from, std::size_t length) {
  Elements out(length);
  std::iota(out.begin(), out.end(), from);
  return out;
}

Elements& append(Elements& to, const Elements& more, int times = 1) {
  for (int i = 0; i < times; ++i) to.insert(to.end(), more.begin(), more.end());
  return to;
}

std::size_t covered(const std::vector<Repeat>& repeats) {
  std::size_t sum = 0;
  for (const Repeat& repeat : repeats) sum += repeat.end() - repeat.start;
  return sum;
}

// What every answer must be, whatever the sequence.
void expect_repeats_are_true(const Elements& elements, const std::vector<Repeat>& repeats,
                             std::size_t least) {
  std::size_t done = 0;
  for (const Repeat& repeat : repeats) {
    EXPECT_GE(repeat.start, done);
    EXPECT_GE(repeat.count, 2U);
    EXPECT_GE(repeat.period * repeat.count, least);
    ASSERT_LE(repeat.end(), elements.size());
    for (std::size_t i = repeat.start + repeat.period; i < repeat.end(); ++i) {
      ASSERT_EQ(elements[i], elements[i - repeat.period]) << i;
    }
    done = repeat.end();
  }
}

TEST(FindRepeats, FindsOneBlockBetweenHeadAndTail) {
  Elements elements = block(1000, 7);
  append(elements, block(0, 10), 12);
  append(elements, block(2000, 9));
  EXPECT_EQ(find_repeats(elements), (std::vector<Repeat>{{7, 10, 12}}));
}

// The experts of a layer repeat too; the layer is the block.
TEST(FindRepeats, TakesABlockThatRepeatsSomethingInsideAsOne) {
  Elements layer = block(0, 8);
  append(layer, block(100, 7), 4);
  append(layer, block(200, 5));
  Elements elements;
  append(elements, layer, 10);
  EXPECT_EQ(find_repeats(elements), (std::vector<Repeat>{{0, layer.size(), 10}}));
}

TEST(FindRepeats, FindsTwoKindsOfBlocks) {
  Elements elements;
  append(elements, block(0, 11), 12);
  append(elements, block(500, 3));
  append(elements, block(100, 17), 9);
  EXPECT_EQ(find_repeats(elements), (std::vector<Repeat>{{0, 11, 12}, {135, 17, 9}}));
}

TEST(FindRepeats, FindsNothingWhereNothingRepeats) {
  EXPECT_TRUE(find_repeats(block(0, 500)).empty());
  EXPECT_TRUE(find_repeats({}).empty());
  EXPECT_TRUE(find_repeats(Elements{1}).empty());
}

TEST(FindRepeats, LeavesOutWhatIsShort) {
  Elements elements;
  append(elements, block(0, 10), 4);
  EXPECT_TRUE(find_repeats(elements, 64).empty());
  EXPECT_EQ(find_repeats(elements, 20), (std::vector<Repeat>{{0, 10, 4}}));
}

TEST(FindRepeats, TakesTheShortPeriodOfEqualElements) {
  const std::vector<Repeat> repeats = find_repeats(Elements(200, 5));
  ASSERT_EQ(repeats.size(), 1U);
  EXPECT_EQ(repeats[0].period, 1U);
  EXPECT_EQ(covered(repeats), 200U);
}

TEST(FindRepeats, IsTrueOfRandomSequences) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Elements elements;
    while (elements.size() < 300) {
      Elements piece;
      for (std::uint64_t i = rng.below(20); i > 0; --i) piece.push_back(rng.below(6));
      append(elements, piece, static_cast<int>(1 + rng.below(12)));
    }
    const std::vector<Repeat> repeats = find_repeats(elements, 30);
    expect_repeats_are_true(elements, repeats, 30);
    found += repeats.empty() ? 0 : 1;
  }
  EXPECT_GT(found, 200);
}

Problem make_problem(Graph graph, Profile profile, const std::string& devices) {
  Problem problem;
  problem.graph = std::move(graph);
  problem.profile = std::move(profile);
  problem.cluster = parse_devices(devices);
  return problem;
}

Problem family_problem(std::string_view family, std::size_t nodes, const std::string& devices) {
  families::Model model = families::make(family, nodes, 1);
  return make_problem(std::move(model.graph), std::move(model.profile), devices);
}

void expect_runs(const Graph& graph, const UnitOf& unit_of) {
  ASSERT_EQ(unit_of.size(), graph.num_nodes());
  ASSERT_EQ(unit_of.front(), 0U);
  for (std::size_t n = 1; n < unit_of.size(); ++n) {
    ASSERT_LE(unit_of[n] - unit_of[n - 1], 1U) << n;
  }
}

void expect_glue_is_kept(const Graph& graph, const UnitOf& unit_of) {
  for (const std::vector<NodeId>& group : graph.glued()) {
    for (const NodeId node : group) {
      ASSERT_EQ(unit_of[node.index()], unit_of[group.front().index()]);
    }
  }
}

// Numbered by first node, none left out, and they can run one after the other.
void expect_acyclic(const Problem& problem, const UnitOf& unit_of) {
  std::size_t next = 0;
  for (const std::size_t unit : unit_of) {
    ASSERT_LE(unit, next);
    if (unit == next) ++next;
  }
  const std::vector<partition::Unit> units = partition::collect_units(problem, unit_of);
  std::vector<std::size_t> order = partition::topological_order(units);
  ASSERT_EQ(order.size(), units.size());
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (const std::size_t before : units[u].before) ASSERT_LT(place[before], place[u]);
  }
}

class CoarseUnits : public testing::TestWithParam<std::string_view> {};

TEST_P(CoarseUnits, AreRunsOfTheOrderNearTheNumberAskedFor) {
  const Problem problem = family_problem(GetParam(), 6000, "8x80GiB");
  for (const std::size_t target : {64U, 500U, 1500U}) {
    SCOPED_TRACE(target);
    const UnitOf unit_of = partition::coarse_units(problem, target);
    expect_runs(problem.graph, unit_of);
    expect_glue_is_kept(problem.graph, unit_of);
    expect_acyclic(problem, unit_of);
    const std::size_t count = unit_of.back() + 1;
    EXPECT_LE(count, 3 * target);
    EXPECT_GE(3 * count, std::min(target, problem.graph.num_nodes() / 8));
  }
}

INSTANTIATE_TEST_SUITE_P(All, CoarseUnits, testing::ValuesIn(families::names()),
                         [](const auto& family) { return std::string(family.param); });

TEST(CoarseUnitsOf, RepeatedBlocksAreCutAtTheSamePlaces) {
  const Problem problem = family_problem("transformer", 6000, "8x80GiB");
  for (const std::size_t target : {100U, 1000U}) {
    SCOPED_TRACE(target);
    const UnitOf unit_of = partition::coarse_units(problem, target);
    const auto repeats = find_repeats(partition::node_signatures(problem.graph));
    ASSERT_FALSE(repeats.empty());
    const Repeat& longest = *std::max_element(
        repeats.begin(), repeats.end(),
        [](const Repeat& a, const Repeat& b) { return a.end() - a.start < b.end() - b.start; });
    EXPECT_EQ(longest.period, 18U);
    // Offsets of cuts in each block, both ends of the repeat left out.
    std::map<std::set<std::size_t>, std::size_t> kinds;
    for (std::size_t b = 1; b + 1 < longest.count; ++b) {
      std::set<std::size_t> offsets;
      for (std::size_t i = 0; i < longest.period; ++i) {
        const std::size_t n = longest.start + b * longest.period + i;
        if (unit_of[n] != unit_of[n - 1]) offsets.insert(i);
      }
      ++kinds[offsets];
    }
    // Blocks are cut alike; where several are together, those inside have no cut.
    std::size_t with_cuts = 0;
    for (const auto& [offsets, times] : kinds) with_cuts += offsets.empty() ? 0U : 1U;
    EXPECT_EQ(with_cuts, 1U);
    if (target == 1000U) {
      EXPECT_EQ(kinds.size(), 1U);
    }
  }
}

TEST(CoarseUnitsOf, RandomGraphsKeepGlueTogether) {
  int glued = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblemOptions wanted;
    wanted.graph.num_nodes = 60;
    const Problem problem = random_problem(seed, wanted);
    glued += problem.graph.glued().empty() ? 0 : 1;
    for (const std::size_t target : {0U, 1U, 8U, 1000U}) {
      const UnitOf unit_of = partition::coarse_units(problem, target);
      expect_runs(problem.graph, unit_of);
      expect_glue_is_kept(problem.graph, unit_of);
      expect_acyclic(problem, unit_of);
    }
  }
  EXPECT_GT(glued, 20);
}

TEST(CoarseUnitsOf, TakeGraphsWithoutAnyTime) {
  Problem problem = family_problem("transformer", 600, "2x80GiB");
  for (NodeCost& cost : problem.profile.nodes) cost.forward = Nanoseconds{0};
  const UnitOf unit_of = partition::coarse_units(problem, 60);
  expect_runs(problem.graph, unit_of);
  EXPECT_GE(unit_of.back(), 20U);
  EXPECT_LE(unit_of.back(), 180U);
}

TEST(OpenBorders, LetsOutTheNodesOfRunsWhoseNeighboursAreElsewhere) {
  const Problem problem = family_problem("chain", 1000, "2x80GiB");
  const UnitOf unit_of = partition::coarse_units(problem, 50);
  const std::size_t count = unit_of.back() + 1;
  std::vector<DeviceId> device(count, DeviceId{0});
  for (std::size_t u = count / 2; u < count; ++u) device[u] = DeviceId{1};
  EXPECT_EQ(partition::open_borders(problem, unit_of, std::vector(count, DeviceId{0}), 1000),
            unit_of);
  EXPECT_EQ(partition::open_borders(problem, unit_of, device, 0), unit_of);
  const UnitOf open = partition::open_borders(problem, unit_of, device, 1000);
  expect_runs(problem.graph, open);
  for (std::size_t n = 1; n < open.size(); ++n) {
    const bool was_cut = unit_of[n] != unit_of[n - 1];
    const bool at_border = unit_of[n] == count / 2 - 1 || unit_of[n] == count / 2;
    EXPECT_EQ(open[n] != open[n - 1], was_cut || at_border) << n;
  }
}

TEST(OpenBorders, KeepsGlueAndMakesNoCycle) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblemOptions wanted;
    wanted.graph.num_nodes = 40;
    const Problem problem = random_problem(seed, wanted);
    const UnitOf unit_of = partition::coarse_units(problem, 8);
    Rng rng(seed);
    std::vector<DeviceId> device;
    for (std::size_t u = 0; u <= unit_of.back(); ++u) device.emplace_back(rng.below(3));
    for (const std::size_t most : {5U, 1000U}) {
      const UnitOf open = partition::open_borders(problem, unit_of, device, most);
      expect_glue_is_kept(problem.graph, open);
      expect_acyclic(problem, open);
    }
  }
}

// Linear layers in a row; layer i uses weights first(i) and second(i), which may be the same.
template <class First, class Second>
Problem sharing_problem(std::size_t layers, std::size_t weights, First&& first, Second&& second) {
  std::string text = "kerf-graph 1.0\ngraph \"sharing\"\nbatch 2\ninput %x: f32[B, 64] = \"a\"\n";
  for (std::size_t w = 0; w < weights; ++w) {
    text += fmt::format("weight @w{}: f32[64, 64] = parameter \"w{}\"\n", w, w);
  }
  for (std::size_t i = 0; i < layers; ++i) {
    const std::string from = i == 0 ? "x" : fmt::format("h{}", i - 1);
    text += fmt::format("%h{}: f32[B, 64] = my.mix.default(%{}, @w{}, @w{})\n", i, from, first(i),
                        second(i));
  }
  text += fmt::format("output \"y\" = %h{}\n", layers - 1);
  Graph graph = parse_graph(text);
  Profile profile;
  profile.graph_hash = graph.hash();
  profile.device_kind = "cuda";
  profile.batch = 2;
  profile.source = Source::given;
  for (std::size_t n = 0; n < layers; ++n) {
    NodeCost cost = node_sizes(graph, NodeId{n}, 2);
    cost.forward = Nanoseconds{100};
    profile.nodes.push_back(cost);
  }
  return make_problem(std::move(graph), std::move(profile), "4x80GiB");
}

constexpr double kWeight = 64 * 64 * 4;

UnitOf joined(const Problem& problem) {
  return partition::join_weight_sharers(problem, partition::indivisible_units(problem.graph));
}

Problem pairs_problem() {
  return sharing_problem(
      32, 16, [](std::size_t i) { return i / 2; }, [](std::size_t i) { return i / 2; });
}

TEST(JoinWeightSharers, JoinsNeighboursWhereMemoryIsShort) {
  Problem problem = pairs_problem();
  limit_every_device(problem, 5 * kWeight);
  const UnitOf unit_of = joined(problem);
  for (std::size_t n = 0; n < 32; ++n) EXPECT_EQ(unit_of[n], n / 2);
  expect_acyclic(problem, unit_of);
}

TEST(JoinWeightSharers, LeavesAllAloneWhereMemoryIsAmple) {
  Problem problem = pairs_problem();
  const UnitOf alone = partition::indivisible_units(problem.graph);
  EXPECT_EQ(joined(problem), alone);
  limit_every_device(problem, 20 * kWeight);
  EXPECT_EQ(joined(problem), alone);
  limit_every_device(problem, 5 * kWeight);
  problem.cluster.devices[2].memory_limited = false;
  EXPECT_EQ(joined(problem), alone);
}

// An embedding and a head that are tied must not swallow the model between them.
TEST(JoinWeightSharers, LeavesUsersAloneThatAreFarApart) {
  Problem problem = sharing_problem(
      32, 31, [](std::size_t i) { return i % 31; }, [](std::size_t i) { return i % 31; });
  limit_every_device(problem, 9 * kWeight);
  EXPECT_EQ(joined(problem), partition::indivisible_units(problem.graph));
}

// Each weight is used by two neighbours, so that every span overlaps the next: joined one after the
// other they would be the whole model, which fits nowhere.
TEST(JoinWeightSharers, LeavesADeviceAChoiceWhereSpansOverlap) {
  Problem problem =
      sharing_problem(32, 33, [](std::size_t i) { return i; }, [](std::size_t i) { return i + 1; });
  limit_every_device(problem, 11 * kWeight);
  const UnitOf unit_of = joined(problem);
  EXPECT_GE(unit_of.back() + 1, 8U);
  expect_acyclic(problem, unit_of);
  for (const std::string_view method : {"chain", "mixed_pipe", "auto", "multilevel", "refine"}) {
    const auto outcome = partition::solve(problem, method);
    EXPECT_TRUE(static_cast<bool>(outcome)) << method;
  }
}

// Joined, the first two layers are on one device, and the best split has 5,000 ns on it; held
// apart, each with a copy of their weight, 4,000.
TEST(JoinWeightSharers, KeepsNothingFromBeingProved) {
  Problem problem = sharing_problem(
      8, 7, [](std::size_t i) { return i < 2 ? 0 : i - 1; },
      [](std::size_t i) { return i < 2 ? 0 : i - 1; });
  problem.cluster = parse_devices("2x80GiB");
  for (Link& link : problem.cluster.links) link = Link{};
  limit_every_device(problem, 4.8 * kWeight);
  const double times[] = {1000, 1000, 3000, 3000, 0, 0, 0, 0};
  for (std::size_t n = 0; n < 8; ++n) problem.profile.nodes[n].forward = Nanoseconds{times[n]};
  ASSERT_EQ(joined(problem)[1], joined(problem)[0]);
  for (const std::string_view method : {"exact", "auto"}) {
    const auto outcome = partition::solve(problem, method);
    ASSERT_TRUE(static_cast<bool>(outcome)) << method;
    EXPECT_DOUBLE_EQ(outcome->busiest.count, 4000) << method;
    EXPECT_LE(outcome->lower_bound.value, 4000) << method;
  }
}

TEST(JoinWeightSharers, MakesNoCycleInRandomGraphs) {
  int fewer = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblemOptions wanted;
    wanted.graph.num_nodes = 40;
    wanted.num_devices = 1 + seed % 2;
    Problem problem = random_problem(seed, wanted);
    limit_every_device(problem, 1);
    const UnitOf alone = partition::indivisible_units(problem.graph);
    const UnitOf unit_of = joined(problem);
    expect_glue_is_kept(problem.graph, unit_of);
    expect_acyclic(problem, unit_of);
    fewer += unit_of == alone ? 0 : 1;
  }
  EXPECT_GT(fewer, 0);
}

}  // namespace
}  // namespace kerf
