// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/emit/report/compare.h"
#include "kerf/emit/report/cut_out.h"
#include "kerf/emit/report/gantt.h"
#include "kerf/emit/report/report_json.h"
#include "kerf/emit/report/table.h"
#include "kerf/emit/report/trace.h"
#include "tests/emit/golden.h"
#include "tests/emit/samples.h"

namespace kerf {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(APlanTable, ShowsStagesDevicesAndPredictions) {
  expect_golden("plan_table.txt", plan_table(samples::plan()));
}

TEST(APlanTable, OfAFixedBatchCountsSteps) {
  Plan plan = samples::plan();
  plan.batch = plan.micro_batch = plan.profile_batch = 0;
  plan.n_microbatches = 1;
  const std::string table = plan_table(plan);
  EXPECT_THAT(table, HasSubstr("steps a second"));
  EXPECT_THAT(table, HasSubstr("fixed, 1 micro-batch"));
}

TEST(APlanTable, SaysWhenTheLowerBoundIsReached) {
  Plan plan = samples::plan();
  plan.lower_bound.value = plan.busiest;
  EXPECT_THAT(plan_table(plan), HasSubstr("reached"));
}

TEST(APlanTable, SaysWhenTheLastMicroBatchIsSmaller) {
  Plan plan = samples::plan();
  plan.batch = 7;
  EXPECT_THAT(plan_table(plan), HasSubstr("7 in 4 micro-batches of at most 2"));
}

TEST(APlanTable, SaysWhenTheSearchWasStopped) {
  Plan plan = samples::plan();
  EXPECT_THAT(plan_table(plan), Not(HasSubstr("stopped early")));
  plan.truncated = true;
  EXPECT_THAT(plan_table(plan), HasSubstr("stopped early"));
}

TEST(AJsonReport, HasTheFiguresOfTheTable) {
  expect_golden("report.json", report_json(samples::plan()).dump(1) + "\n");
}

TEST(CutBytesOfStages, AddUpToThoseOfThePlan) {
  Plan plan = samples::plan();
  // Used twice on cpu:1 and once at home: it crosses once.
  plan.stages.push_back(plan.stages[1]);
  plan.stages.push_back(plan.stages[0]);
  plan.cuts[0].to = {StageId{1}, StageId{2}, StageId{3}};
  Bytes sum;
  for (const Bytes bytes : cut_bytes_of_stages(plan)) sum += bytes;
  EXPECT_EQ(sum, plan.cut_bytes());
  EXPECT_EQ(sum, Bytes{4096});
}

TEST(ADrawnTimeline, HasARowForEachDevice) {
  expect_golden("timeline.txt", draw_timeline(samples::timeline(), 60));
}

TEST(ADrawnTimeline, OfNothingIsItsHeadingAlone) {
  Timeline empty;
  empty.devices = {"cpu:0"};
  EXPECT_EQ(draw_timeline(empty),
            "simulated step 0.00 ns: 0 stages, 0 micro-batches, bubble 0.0 %\n");
}

TEST(ADrawnTimeline, TakesAnyWidth) {
  for (const int width : {-5, 0, 1, 8, 200}) {
    EXPECT_THAT(draw_timeline(samples::timeline(), width), HasSubstr("cpu:1")) << width;
  }
}

TEST(AChromeTrace, HasAProcessForEachTimeline) {
  const std::vector<Timeline> both{samples::timeline(), samples::timeline("measured", 1.5)};
  expect_golden("trace.json", chrome_trace(both));
}

TEST(AComparison, GivesTheRatioOfMeasuredToPredicted) {
  expect_golden("compare.txt",
                compare_timelines(samples::timeline(), samples::timeline("measured", 1.5)));
}

TEST(AComparison, RefusesTimelinesOfDifferentPlans) {
  Timeline other = samples::timeline();
  other.graph_hash = "11111111111111111111111111111111";
  EXPECT_THROW(compare_timelines(samples::timeline(), other), Error);
  other = samples::timeline();
  other.devices = {"cpu:0"};
  EXPECT_THROW(compare_timelines(samples::timeline(), other), Error);
}

}  // namespace
}  // namespace kerf
