// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The argument for order edges and glue, tried rather than believed: toy numbers through random
// graphs, whole and cut (rules in toy_run.h). With both, no legal cut and no legal order changes a
// number. Without either, some do: the tests would notice if the rules were too weak.
#include <gtest/gtest.h>

#include <cstdlib>

#include "kerf/graph/passes/reorder.h"
#include "kerf/graph/text.h"
#include "tests/graph/cuts.h"
#include "tests/graph/random_graph.h"
#include "tests/graph/toy_run.h"

namespace kerf::toy {
namespace {

constexpr std::int64_t kBatch = 2;

// KERF_TEST_EFFORT=50 tries fifty times as many graphs.
std::uint64_t seeds(std::uint64_t count) {
  const char* const effort = std::getenv("KERF_TEST_EFFORT");
  return count * (effort == nullptr ? 1 : std::strtoull(effort, nullptr, 10));
}

std::vector<NodeId> given_order(const Graph& graph) {
  std::vector<NodeId> out;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) out.push_back(NodeId(n));
  return out;
}

std::string show(const Graph& graph, const Stages& stages) {
  std::string out = print_graph(graph);
  for (const auto& stage : stages) {
    out += "stage:";
    for (const NodeId id : stage) out += " " + graph.node(id).name;
    out += '\n';
  }
  for (const auto& group : graph.glued()) {
    out += "glued:";
    for (const NodeId id : group) out += " " + graph.node(id).name;
    out += '\n';
  }
  return out;
}

// How many of `tries` random cuts change what a caller sees. `witness` gets the first.
std::size_t wrong_cuts(const Graph& graph, Rules rules, std::size_t tries, std::uint64_t seed,
                       std::string* witness = nullptr) {
  Cutter cutter(graph, rules);
  while (cutter.close()) {
  }
  Rng rng(seed);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < tries; ++i) {
    const std::uint64_t coins = rng.next();
    const Stages stages = cutter.cut(2 + rng.below(4), rng);
    const Observed expected = run_whole(graph, given_order(graph), kBatch, coins);
    const Observed got = StagedRun(graph, stages, kBatch, coins, rng.next()).run();
    if (expected == got) continue;
    if (++wrong == 1 && witness != nullptr) *witness = show(graph, stages);
  }
  return wrong;
}

std::size_t wrong_orders(const Graph& graph, bool order_edges, std::size_t tries) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < tries; ++i) {
    const auto order = random_order(graph, i, order_edges);
    wrong += run_whole(graph, order, kBatch, i) != run_whole(graph, given_order(graph), kBatch, i);
  }
  return wrong;
}

RandomGraphOptions plain(std::size_t num_nodes) {
  return {.num_nodes = num_nodes, .batch = true, .decorate = false};
}

TEST(ALegalOrder, ChangesNoNumber) {
  for (std::uint64_t seed = 0; seed < seeds(300); ++seed) {
    const Graph graph = random_graph(seed, plain(6 + seed % 25));
    ASSERT_EQ(wrong_orders(graph, true, 5), 0U) << print_graph(graph);
  }
}

TEST(AnOrderByDataAlone, ChangesNumbers) {
  std::size_t wrong = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    wrong += wrong_orders(random_graph(seed, plain(20)), false, 5);
  }
  EXPECT_GT(wrong, 50U);
}

TEST(ALegalCut, ChangesNoNumber) {
  for (std::uint64_t seed = 0; seed < seeds(1500); ++seed) {
    const Graph graph = random_graph(seed, plain(4 + seed % 25));
    std::string witness;
    ASSERT_EQ(wrong_cuts(graph, {}, 12, seed, &witness), 0U) << "seed " << seed << "\n" << witness;
  }
}

TEST(ALegalCut, ChangesNoNumberWhereNothingMayAlias) {
  for (std::uint64_t seed = 0; seed < seeds(500); ++seed) {
    RandomGraphOptions options = plain(4 + seed % 20);
    options.may_alias = false;
    const Graph graph = random_graph(seed, options);
    std::string witness;
    ASSERT_EQ(wrong_cuts(graph, {}, 12, seed, &witness), 0U) << "seed " << seed << "\n" << witness;
  }
}

TEST(ALegalCut, ChangesNoNumberWhereWritesStayInside) {
  for (std::uint64_t seed = 0; seed < seeds(500); ++seed) {
    RandomGraphOptions options = plain(4 + seed % 20);
    options.outside_writes = false;
    const Graph graph = random_graph(seed, options);
    std::string witness;
    ASSERT_EQ(wrong_cuts(graph, {}, 12, seed, &witness), 0U) << "seed " << seed << "\n" << witness;
  }
}

TEST(ACutThatIgnoresGlue, ChangesNumbers) {
  std::size_t wrong = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    wrong += wrong_cuts(random_graph(seed, plain(20)), {.glue = false}, 5, seed);
  }
  EXPECT_GT(wrong, 50U);
}

TEST(ACutThatIgnoresOrderEdges, ChangesNumbers) {
  std::size_t wrong = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    wrong += wrong_cuts(random_graph(seed, plain(20)), {.order_edges = false}, 5, seed);
  }
  EXPECT_GT(wrong, 50U);
}

TEST(ACutOfAGraphWithoutWrites, NeedsNeither) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    RandomGraphOptions options = plain(20);
    options.writes = false;
    const Graph graph = random_graph(seed, options);
    EXPECT_TRUE(graph.order_edges().empty());
    EXPECT_TRUE(graph.glued().empty());
    ASSERT_EQ(wrong_cuts(graph, {.order_edges = false, .glue = false}, 5, seed), 0U);
  }
}

// A planner that contracts the groups must be left with something it can sort.
TEST(TheGluedGroups, FormNoCycleWhenContracted) {
  for (std::uint64_t seed = 0; seed < seeds(500); ++seed) {
    const Graph graph = random_graph(seed, plain(5 + seed % 30));
    EXPECT_FALSE(Cutter(graph, {}).close()) << show(graph, {});
  }
}

// Each rule of the staged run above is itself needed: these graphs are the smallest that show it.
struct Sample {
  const char* name;
  const char* text;
};

constexpr Sample kSamples[] = {
    {"in-place relu after another reader", R"(kerf-graph 1.0
input %x: f32[4] = "args.0"
%h: f32[4] = toy.make(%x)
%a: f32[4] = toy.read(%h)
%r: f32[4] in %h = toy.relu_(&%h)
%b: f32[4] = toy.read(%r)
output "a" = %a
output "b" = %b
)"},
    {"a slice is assigned, the whole is read", R"(kerf-graph 1.0
input %x: f32[2] = "args.0"
%base: f32[4] = toy.zeros()
%s: f32[2] in %base + 8 = toy.slice(%base)
%c: f32[2] in %base + 8 = toy.copy_(&%s, %x)
%y: f32[4] = toy.read(%base)
output "y" = %y
)"},
    {"a result is written after it was taken", R"(kerf-graph 1.0
input %x: f32[4] = "args.0"
%h: f32[4] = toy.make(%x)
%v: f32[4] in %h = toy.view(%h)
%m: f32[4] = toy.read(%v)
() = toy.accumulate_(&%v, %m) ; name="w"
output "h" = %h
output "m" = %m
)"},
    {"the uncertain alias stands between two names", R"(kerf-graph 1.0
input %x: f32[4] = "args.0"
%h: f32[4] = toy.make(%x)
%u: f32[4] = toy.reshape(~%h)
%m: f32[4] = toy.read(%u)
() = toy.accumulate_(&%u, %m) ; name="w"
%y: f32[4] = toy.read(%h)
output "y" = %y
)"},
    {"the uncertain alias was a view when traced", R"(kerf-graph 1.0
input %x: f32[4] = "args.0"
%h: f32[4] = toy.make(%x)
%u: f32[4] in %h = toy.reshape(~%h)
%m: f32[4] = toy.read(%u)
() = toy.accumulate_(&%u, %m) ; name="w"
%y: f32[4] = toy.read(%h)
output "y" = %y
)"},
    {"a running statistic is read before and after its update", R"(kerf-graph 1.0
input %x: f32[4] = "args.0"
weight @mean: f32[4] = buffer "bn.running_mean"
%a: f32[4] = toy.read(@mean, %x)
%n: f32[4] = toy.batch_norm(%a, &@mean)
%b: f32[4] = toy.read(@mean, %n)
output "b" = %b
)"},
};

TEST(ASmallSample, IsCutWithoutChangingANumber) {
  for (const Sample& sample : kSamples) {
    const Graph graph = parse_graph(sample.text);
    std::string witness;
    EXPECT_EQ(wrong_cuts(graph, {}, 200, 1, &witness), 0U) << sample.name << "\n" << witness;
    EXPECT_EQ(wrong_orders(graph, true, 50), 0U) << sample.name;
  }
}

TEST(ASmallSample, GoesWrongWithoutOrderEdgesOrGlue) {
  for (const Sample& sample : kSamples) {
    const Graph graph = parse_graph(sample.text);
    EXPECT_GT(wrong_cuts(graph, {.order_edges = false, .glue = false}, 200, 1), 0U) << sample.name;
  }
}

}  // namespace
}  // namespace kerf::toy
