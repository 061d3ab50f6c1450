// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Every method on models of every family (benchmarks/scale): on a dozen nodes no plan is better
// than the exact one and no bound above it, on hundreds every plan is sound. And that the models
// are what the benchmark says of them.
#include "benchmarks/scale/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kerf/base/error.h"
#include "kerf/device/devices.h"
#include "kerf/graph/text.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/simulate/make_plan.h"
#include "tests/support/expect_verified.h"
#include "tests/support/limited_problem.h"

namespace kerf {
namespace {

constexpr double kRounding = 1e-9;
constexpr double kExactSeconds = 20;  // it ends long before, unless the machine is busy
constexpr double kSeconds = 0.05;     // of search, for all others

Problem make_problem(const families::Model& model, const std::string& devices) {
  Problem problem;
  problem.graph = model.graph;
  problem.profile = model.profile;
  problem.cluster = parse_devices(devices);
  return problem;
}

void expect_sound(const Problem& problem, const Plan& plan) {
  expect_verified(problem, plan);
  EXPECT_FALSE(find_overflow(plan)) << plan.method;
  EXPECT_LE(plan.lower_bound.value, plan.objective_value() * (1 + kRounding)) << plan.method;
}

Outcome<Plan, Infeasible> plan_within(const Problem& problem, const std::string& method,
                                      double seconds) {
  partition::Options options;
  options.time_budget = seconds;
  return partition::solve(problem, method, options);
}

struct Checked {
  int found = 0;   // by how many methods
  int proved = 0;  // by the exact one: not stopped by the clock, as on a busy machine it may be
};

void check_against_exact(const Problem& problem, Checked& checked) {
  const auto exact = plan_within(problem, "exact", kExactSeconds);
  if (!exact) return;
  if (!exact->truncated) {
    EXPECT_LE(exact->gap(), 1e-5);
    ++checked.proved;
  }
  const double best = exact->gap() <= 1e-5 ? exact->objective_value() : exact->lower_bound.value;
  for (const std::string& method : partition::comparable_methods()) {
    const auto outcome = plan_within(problem, method, kSeconds);
    if (!outcome) continue;
    ++checked.found;
    expect_sound(problem, *outcome);
    EXPECT_GE(outcome->objective_value(), best * (1 - kRounding)) << method;
    EXPECT_LE(outcome->lower_bound.value, exact->objective_value() * (1 + kRounding)) << method;
  }
}

// Nothing but a proof says that a search by minimum cuts was done with.
TEST(ExactAndAuto, AreTruncatedWhereTheirWorkWasUsedUpBeforeAProof) {
  int unproved = 0;
  int proved = 0;
  for (const std::size_t nodes : {20U, 300U}) {
    const families::Model model = families::make("transformer", nodes, 1, 0.1);
    const Problem problem = make_problem(model, "4x80GiB");
    for (const std::string method : {"exact", "auto"}) {
      const auto plan = plan_within(problem, method, kSeconds);
      ASSERT_TRUE(static_cast<bool>(plan));
      const bool has_gap = plan->gap() > 2e-6;
      EXPECT_EQ(plan->truncated, has_gap) << method << nodes;
      ++(has_gap ? unproved : proved);
    }
  }
  EXPECT_GT(unproved, 0);
  EXPECT_GT(proved, 0);
}

class Families : public testing::TestWithParam<std::string_view> {};

TEST_P(Families, NoMethodBeatsTheExactOne) {
  const auto methods = static_cast<int>(partition::comparable_methods().size());
  Checked checked;
  for (const int devices : {2, 3}) {
    SCOPED_TRACE(devices);
    for (const std::uint64_t seed : {1, 2}) {
      const families::Model model = families::make(GetParam(), 11, seed, 0.05);
      ASSERT_LE(model.graph.num_nodes(), 15U);
      const Problem problem = make_problem(model, std::to_string(devices) + "x80GiB");
      check_against_exact(problem, checked);
    }
  }
  EXPECT_EQ(checked.found, 4 * methods);
  EXPECT_GT(checked.proved, 0);
}

TEST_P(Families, NoMethodBeatsTheExactOneWhereMemoryIsShort) {
  Checked checked;
  for (const double share : {0.85, 0.65}) {
    SCOPED_TRACE(share);
    const families::Model model = families::make(GetParam(), 11, 3, 0.05);
    Problem problem = make_problem(model, "3x80GiB");
    limit_every_device(problem, share * bytes_on_one_device(problem));
    check_against_exact(problem, checked);
  }
  EXPECT_GT(checked.found, 0);
}

TEST_P(Families, EveryMethodIsSoundOnHundredsOfNodes) {
  const families::Model model = families::make(GetParam(), 300, 1);
  const Problem problem = make_problem(model, "4x80GiB");
  for (const std::string& method : partition::comparable_methods()) {
    const auto outcome = plan_within(problem, method, kSeconds);
    ASSERT_TRUE(static_cast<bool>(outcome)) << method << ": " << outcome.reason().message();
    expect_sound(problem, *outcome);
  }
}

TEST_P(Families, EveryMethodIsSoundOnHundredsOfNodesWhereMemoryIsShort) {
  const families::Model model = families::make(GetParam(), 300, 2);
  Problem problem = make_problem(model, "4x80GiB");
  limit_every_device(problem, 0.6 * bytes_on_one_device(problem));
  int found = 0;
  for (const std::string& method : partition::comparable_methods()) {
    const auto outcome = plan_within(problem, method, kSeconds);
    if (!outcome) continue;
    ++found;
    expect_sound(problem, *outcome);
  }
  EXPECT_GT(found, 0);
}

TEST_P(Families, AreAboutAsLargeAsAskedFor) {
  if (GetParam() == "t5_3b") return;  // has the size it has
  for (const std::size_t nodes : {1000U, 5000U}) {
    const double made = static_cast<double>(families::make(GetParam(), nodes, 1).graph.num_nodes());
    EXPECT_NEAR(made, static_cast<double>(nodes), 0.15 * static_cast<double>(nodes));
  }
}

TEST_P(Families, AreTheSameForASeedAndComeBackFromTheirFiles) {
  const families::Model model = families::make(GetParam(), 500, 7, 0.1);
  const families::Model again = families::make(GetParam(), 500, 7, 0.1);
  EXPECT_EQ(model.graph, again.graph);
  EXPECT_EQ(model.profile, again.profile);
  EXPECT_NE(model.profile, families::make(GetParam(), 500, 8, 0.1).profile);
  const Graph read = parse_graph(print_graph(model.graph));
  EXPECT_EQ(read, model.graph);
  EXPECT_EQ(parse_profile(print_profile(model.profile, model.graph), read), model.profile);
}

INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(families::names()),
                         [](const auto& family) { return std::string(family.param); });

TEST(FamilyModels, NameTheFamiliesWhenThereIsNoSuchOne) {
  try {
    families::make("perceptron", 100, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(error.what(), testing::HasSubstr("chain, transformer"));
  }
  EXPECT_THROW(families::make("chain", 0, 0), Error);
}

TEST(FamilyModels, RepeatBlocksWithEqualCosts) {
  constexpr std::size_t kBlock = 18;
  const families::Model same = families::make("transformer", 200, 1);
  const families::Model noisy = families::make("transformer", 200, 1, 0.05);
  const auto time = [](const families::Model& model, std::size_t node) {
    return model.profile.nodes[node].forward.count;
  };
  int differ = 0;
  for (std::size_t place = 1; place <= kBlock; ++place) {
    EXPECT_EQ(same.graph.nodes()[place].op, same.graph.nodes()[place + kBlock].op);
    EXPECT_EQ(time(same, place), time(same, place + kBlock)) << place;
    differ += time(noisy, place) != time(noisy, place + kBlock) ? 1 : 0;
  }
  EXPECT_GT(differ, 10);
}

TEST(FamilyModels, TileHasThePublishedSize) {
  const Graph graph = families::make("tile", 36500, 0).graph;
  EXPECT_EQ(graph.num_nodes(), 36500U);
  std::size_t edges = 0;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) edges += graph.successors(NodeId{n}).size();
  EXPECT_EQ(edges, 62200U);
}

TEST(FamilyModels, T5HasThePublishedSizeAndTime) {
  for (const std::size_t nodes : {774U, 6150U}) {
    const families::Model model = families::make("t5", nodes, 0);
    EXPECT_EQ(model.graph.num_nodes(), nodes);
    EXPECT_NEAR(model.profile.total_forward().count, 279.2e6, 1);
    int timed = 0;
    for (const NodeCost& cost : model.profile.nodes) timed += cost.forward.count > 0 ? 1 : 0;
    EXPECT_NEAR(timed, 0.35 * static_cast<double>(nodes), 0.05 * static_cast<double>(nodes));
  }
}

double weight_bytes(const Graph& graph) {
  std::vector<bool> seen(graph.storages().size());
  double sum = 0;
  for (const Weight& weight : graph.weights()) {
    const StorageId storage = graph.value(weight.value).storage;
    if (seen[storage.index()]) continue;
    seen[storage.index()] = true;
    sum += static_cast<double>(graph.storage(storage).bytes.eval(1));
  }
  return sum;
}

// Device d has the encoder blocks 3d .. 3d+2 as one stage and the decoder blocks 3d .. as another.
Plan paired_plan(const Problem& problem) {
  std::vector<std::vector<NodeId>> stages(16);
  for (std::size_t n = 0; n < problem.graph.num_nodes(); ++n) {
    const std::string& path = problem.graph.scope(problem.graph.nodes()[n].scope).path;
    const std::size_t block = std::stoul(path.substr(path.find('.') + 1));
    stages[block / 3 + (path.starts_with("decoder") ? 8 : 0)].push_back(NodeId{n});
  }
  std::vector<DeviceId> devices;
  for (std::size_t stage = 0; stage < 16; ++stage) devices.emplace_back(stage % 8);
  return make_plan(problem, stages, devices, "pairs");
}

TEST(FamilyModels, T5LargeFitsInPairsWhereNoRunOfBlocksDoes) {
  const families::Model model = families::make("t5_3b", 744, 0);
  const double weights = weight_bytes(model.graph);
  EXPECT_NEAR(weights / 4, 2884e6, 1e6);
  Problem problem = make_problem(model, "8x80GiB");
  limit_every_device(problem, 1.05 * weights / 8);
  EXPECT_FALSE(static_cast<bool>(partition::solve(problem, "chain")));
  const Plan pairs = paired_plan(problem);
  EXPECT_FALSE(find_overflow(pairs));
  EXPECT_LE(pairs.busiest.count * 8 / model.profile.total_forward().count, 1.02);
}

}  // namespace
}  // namespace kerf
