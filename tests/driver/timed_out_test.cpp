// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the real clock ended says so, with a plan or without, and decides nothing for others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/base/stop_clock.h"
#include "kerf/driver/compare.h"
#include "kerf/driver/plan.h"
#include "kerf/driver/plan_load.h"
#include "kerf/partition/chain/chain.h"
#include "tests/driver/small_problem.h"
#include "tests/place/random_load.h"

namespace kerf {
namespace {

using ::testing::HasSubstr;

void stop_by_clock() { ASSERT_TRUE(clock_passed(Deadline::min())); }

Outcome<Plan, Infeasible> late_without_plan(const Problem& /*problem*/,
                                            const partition::Options& /*options*/) {
  stop_by_clock();
  return Infeasible{.method = "late", .device = "cpu:0", .what_would_help = "add a device"};
}

// Chain's plan, with the strongest bound that there can be.
Outcome<Plan, Infeasible> late_with_bound(const Problem& problem,
                                          const partition::Options& options) {
  auto outcome = partition::chain(problem, options);
  outcome->lower_bound = {"late", outcome->objective_value(), "found in time this time"};
  stop_by_clock();
  return outcome;
}

constexpr partition::Entry kWithoutPlan{.name = "late", .method = late_without_plan};
constexpr partition::Entry kWithBound{.name = "late", .method = late_with_bound};

TEST(ATimedOutSearch, SaysSoWhereItFoundNoPlan) {
  const auto outcome = plan(small_problem("cpu:0,cpu:1"), kWithoutPlan, {});
  ASSERT_FALSE(outcome);
  EXPECT_TRUE(outcome.reason().timed_out);
  EXPECT_THAT(outcome.reason().message(), HasSubstr("stopped by the clock"));
}

TEST(ATimedOutSearch, SaysSoWhereItFoundNoSplit) {
  place::LoadRequest request;
  request.options.time_budget = 0.05;
  const auto outcome =
      plan(random_load(3, {}), request, [](const LoadProblem&, const place::LoadRequest&) {
        stop_by_clock();
        return std::optional<LoadPlan>();
      });
  ASSERT_FALSE(outcome);
  EXPECT_TRUE(outcome.reason().timed_out);
}

TEST(ATimedOutSearch, LendsItsBoundToNoOtherRow) {
  const Problem problem = small_problem("cpu:0,cpu:1");
  const partition::Entry chain = partition::get_method("chain");
  const LowerBound own = partition::chain(problem, {})->lower_bound;
  const std::vector<partition::Entry> both{chain, kWithBound};
  const Comparison comparison = compare(problem, both, {});
  ASSERT_TRUE(comparison.methods[1].plan.timed_out);
  ASSERT_LT(own.value, comparison.methods[1].plan.objective_value());
  EXPECT_EQ(comparison.bound, own);
  // Where every row was stopped, every row says so.
  const std::vector<partition::Entry> late{kWithBound};
  EXPECT_EQ(compare(problem, late, {}).bound.name, "late");
}

}  // namespace
}  // namespace kerf
