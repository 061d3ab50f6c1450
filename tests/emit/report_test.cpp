// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kerf/emit/report/analysis.h"
#include "kerf/emit/report/compare.h"
#include "kerf/emit/report/cut_out.h"
#include "kerf/emit/report/gantt.h"
#include "kerf/emit/report/report_json.h"
#include "kerf/emit/report/scopes.h"
#include "kerf/emit/report/table.h"
#include "kerf/emit/report/trace.h"
#include "kerf/graph/text.h"
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
  EXPECT_THAT(table, HasSubstr("steps per second"));
  EXPECT_THAT(table, HasSubstr("fixed, 1 micro-batch"));
}

TEST(APlanTable, SaysWhenTheLowerBoundIsReached) {
  Plan plan = samples::plan();
  plan.lower_bound.value = plan.busiest.count;
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

TEST(APlanTable, ListsReplicasWhenThereAreAny) {
  Plan plan = samples::plan();
  EXPECT_THAT(plan_table(plan), Not(HasSubstr("replicas")));
  for (int d = 2; d < 14; ++d) {
    plan.cluster.devices.push_back(plan.cluster.devices[0]);
    plan.cluster.devices.back().name = fmt::format("cpu:{}", d);
    plan.loads.emplace_back();
    plan.memory.emplace_back();
  }
  plan.replicas = {{DeviceId{2}, DeviceId{3}}};
  EXPECT_THAT(plan_table(plan), HasSubstr("replicas            1 more copy: cpu:2, cpu:3\n"));
  plan.replicas = {{DeviceId{2}, DeviceId{2}}, {DeviceId{3}, DeviceId{3}}};
  EXPECT_THAT(plan_table(plan), HasSubstr("2 more copies: cpu:2; cpu:3\n"));
  EXPECT_EQ(report_json(plan)["replicas"].dump(), R"([["cpu:2","cpu:2"],["cpu:3","cpu:3"]])");
  for (int d = 4; d < 14; ++d) plan.replicas.push_back({DeviceId{d}, DeviceId{d}});
  EXPECT_THAT(plan_table(plan), HasSubstr("12 more copies: cpu:2; cpu:3; cpu:4; cpu:5; ...\n"));
}

Graph graph_with_modules() {
  return parse_graph(R"(kerf-graph 1.0
graph "mlp"
scope 1 "embed" "Linear"
scope 2 "layers.0" "Block"
scope 3 "layers.0.up" "Linear"
scope 4 "layers.0.down" "Linear"
scope 5 "layers.1.up" "Linear"
input %x: f32[2] = "args.0"
%a: f32[2] = aten.relu.default(%x) ; scope=1
%b: f32[2] = aten.relu.default(%a) ; scope=3
%c: f32[2] = aten.relu.default(%b) ; scope=4
%d: f32[2] = aten.relu.default(%c) ; scope=5
%e: f32[2] = aten.relu.default(%d)
output "y" = %e
)");
}

Plan cut_after(const Graph& graph, std::size_t nodes) {
  Plan plan = samples::plan();
  plan.graph_hash = graph.hash();
  plan.node_names.clear();
  plan.stages[0].nodes.clear();
  plan.stages[1].nodes.clear();
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    plan.node_names.push_back(graph.nodes()[n].name);
    plan.stages[n < nodes ? 0 : 1].nodes.emplace_back(n);
  }
  return plan;
}

TEST(ScopeRanges, NameWholeModulesByThemselves) {
  const Graph graph = graph_with_modules();
  EXPECT_THAT(scope_ranges(cut_after(graph, 3), graph),
              testing::ElementsAre("embed .. layers.0", "layers.1"));
}

TEST(ScopeRanges, NameThePartsOfAModuleThatIsCut) {
  const Graph graph = graph_with_modules();
  EXPECT_THAT(scope_ranges(cut_after(graph, 2), graph),
              testing::ElementsAre("embed .. layers.0.up", "layers.0.down .. layers.1"));
}

TEST(ScopeRanges, AreEmptyOutsideOfModules) {
  const Graph graph = graph_with_modules();
  EXPECT_THAT(scope_ranges(cut_after(graph, 4), graph),
              testing::ElementsAre("embed .. layers", ""));
}

TEST(ScopeRanges, RefuseAPlanOfAnotherGraph) {
  EXPECT_THROW(scope_ranges(samples::plan(), graph_with_modules()), Error);
}

TEST(APlanTable, NamesTheModulesWhenItIsGivenTheGraph) {
  const Graph graph = graph_with_modules();
  EXPECT_THAT(plan_table(cut_after(graph, 3), &graph), HasSubstr("embed .. layers.0\n"));
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

TEST(AComparison, SaysWhenTheNumbersOfMicroBatchesDiffer) {
  Timeline other = samples::timeline();
  const int count = other.n_microbatches++;
  EXPECT_NE(compare_timelines(samples::timeline(), other)
                .find(fmt::format("of {} and {} micro-batches: only times per micro-batch", count,
                                  count + 1)),
            std::string::npos);
}

TEST(AnAnalysis, CountsTransfersOnceAndUtilisationFromTheBusiest) {
  const Plan plan = samples::plan();
  const Analysis analysis = analyse(plan);
  ASSERT_EQ(analysis.stages.size(), 2U);
  EXPECT_EQ(analysis.stages[0].sent, analysis.stages[1].received);
  EXPECT_EQ(analysis.stages[1].forward_transfers, plan.cluster.links[1].time({4096}));
  EXPECT_EQ(analysis.stages[0].transfers(), Nanoseconds{});
  EXPECT_EQ(analysis.busiest_without_transfers, Nanoseconds{3e6});
  EXPECT_EQ(analysis.ideal, Nanoseconds{2.5e6});
  EXPECT_EQ(analysis.sequential, Nanoseconds{5e6});
  EXPECT_DOUBLE_EQ(analysis.slowdown(), analysis.busiest / Nanoseconds{2.5e6});
  EXPECT_FALSE(analysis.stages[0].parameters.has_value());
  double most = 0;
  for (const DeviceAnalysis& device : analysis.devices) most = std::max(most, device.utilisation);
  EXPECT_EQ(most, 1);
}

TEST(AnAnalysisTable, ShowsStagesDevicesAndGains) {
  expect_golden("analysis.txt", analysis_table(samples::plan(), analyse(samples::plan())));
}

TEST(AnAnalysis, RefusesATimelineOfAnotherPlan) {
  Timeline other;
  other.graph_hash = "other";
  EXPECT_THROW(analyse(samples::plan(), nullptr, &other), Error);
}

}  // namespace
}  // namespace kerf
