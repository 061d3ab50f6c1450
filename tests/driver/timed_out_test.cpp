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
  Infeasible reason;
  reason.method = "late";
  reason.device = "cpu:0";
  reason.what_would_help = "add a device";
  return reason;
}

// Chain's plan with a weak bound, and with the strongest that there can be.
Outcome<Plan, Infeasible> in_time(const Problem& problem, const partition::Options& options) {
  auto outcome = partition::chain(problem, options);
  outcome->lower_bound = {"weak", outcome->objective_value() / 2, "half of what it takes"};
  return outcome;
}
Outcome<Plan, Infeasible> late(const Problem& problem, const partition::Options& options) {
  auto outcome = partition::chain(problem, options);
  outcome->lower_bound = {"strong", outcome->objective_value(), "found in time this time"};
  stop_by_clock();
  return outcome;
}

constexpr partition::Entry kWithoutPlan{
    .name = "late", .description = "", .method = late_without_plan};
constexpr partition::Entry kInTime{.name = "in_time", .description = "", .method = in_time};
constexpr partition::Entry kLate{.name = "late", .description = "", .method = late};

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
  const std::vector<partition::Entry> both{kLate, kInTime};
  const Comparison comparison = compare(problem, both, {});
  ASSERT_TRUE(comparison.methods[0].plan.timed_out);
  EXPECT_EQ(comparison.bound.name, "weak");
  // Where every row was stopped, every row says so.
  const std::vector<partition::Entry> stopped{kLate};
  EXPECT_EQ(compare(problem, stopped, {}).bound.name, "strong");
}

}  // namespace
}  // namespace kerf
