// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What partition/README.md says about adding a method: a solver and a row, and it is there for
// traced models, published problems and comparisons, with its option, verified like the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/driver/compare.h"
#include "kerf/driver/plan.h"
#include "kerf/driver/plan_load.h"
#include "kerf/driver/search_load.h"
#include "kerf/verify/verify_plan.h"
#include "tests/driver/small_problem.h"
#include "tests/place/random_load.h"

namespace kerf {
namespace {

using ::testing::HasSubstr;

int last_stages = -1;  // the option as it arrived

// Units in their order, as many for each device, which is no good split of anything.
place::LoadAnswer deal_out(const place::Instance& instance, const place::LoadOptions& options) {
  last_stages = options.method.mixed_pipe.stages;
  place::LoadAnswer answer;
  const std::size_t units = instance.num_units();
  const auto devices = static_cast<std::size_t>(instance.num_devices);
  for (std::size_t t = 0; t < units; ++t) {
    answer.device.push_back(instance.on_accelerator[t] != 0 ? SlotId{t * devices / units}
                                                            : instance.cpu);
  }
  answer.objective = place::find_loads(instance, answer.device).busiest;
  return answer;
}

const place::SplitMethod& deal_out_split() {
  static const place::SplitMethod method{
      {{.solver = deal_out, .mixes = true}}, {}, place::Shape::any};
  return method;
}

constexpr partition::Entry kDealOut{.name = "deal_out",
                                    .description = "units in their order, as many each",
                                    .split = deal_out_split,
                                    .takes = place::Takes::mixed_pipe};

std::optional<LoadPlan> deal_out_load(const LoadProblem& problem,
                                      const place::LoadRequest& request) {
  return search_load(problem, request, kDealOut);
}

TEST(ANewMethod, PlansATracedModelWithItsOption) {
  const Problem problem = small_problem("cpu:0,cpu:1");
  partition::Options options;
  options.method.mixed_pipe.stages = 7;
  const auto outcome = plan(problem, kDealOut, options);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(last_stages, 7);
  EXPECT_EQ(outcome->method, "deal_out");
  EXPECT_TRUE(verify_plan(problem.graph, &problem.profile, *outcome).empty());
}

TEST(ANewMethod, IsComparedWithTheOthers) {
  const Problem problem = small_problem("cpu:0,cpu:1");
  const std::vector<partition::Entry> methods{partition::get_method("chain"), kDealOut};
  const Comparison comparison = compare(problem, methods, {});
  ASSERT_EQ(comparison.methods.size(), 2U);
  EXPECT_TRUE(comparison.methods[1].found);
  EXPECT_LE(comparison.methods[0].plan.busiest, comparison.methods[1].plan.busiest);
}

TEST(ANewMethod, PlansPublishedProblems) {
  RandomLoadOptions shape;
  shape.num_nodes = 12;
  const LoadProblem problem = random_load(3, shape);
  place::LoadRequest request;
  request.method = "deal_out";
  request.options.method.mixed_pipe.stages = 5;
  const auto outcome = plan(problem, request, deal_out_load);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(last_stages, 5);
  EXPECT_GE(outcome->value, outcome->lower_bound);
}

TEST(ANewMethod, RefusesTheOptionsOfOthers) {
  partition::Options options;
  options.method.balance.minimise = place::Minimise::edge_cut;
  try {
    (void)plan(small_problem("cpu:0,cpu:1"), kDealOut, options);
    FAIL() << "an option was lost in silence";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("minimising edge_cut for method 'deal_out'"));
  }
}

}  // namespace
}  // namespace kerf
