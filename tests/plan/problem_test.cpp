// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/device/devices.h"
#include "kerf/graph/text.h"
#include "kerf/plan/timeline.h"
#include "kerf/profile/estimate.h"

namespace kerf {
namespace {

using ::testing::HasSubstr;

Problem small_problem(bool is_static = false) {
  Problem problem;
  const std::string batch = is_static ? "" : "batch 6\n";
  const std::string size = is_static ? "6" : "B";
  problem.graph = parse_graph("kerf-graph 1.0\ngraph \"small\"\n" + batch + "input %x: f32[" +
                              size + ", 4] = \"args.0\"\n%y: f32[" + size +
                              ", 4] = aten.relu.default(%x)\noutput \"y\" = %y\n");
  problem.profile = estimate(problem.graph, device_kind("cpu"));
  problem.cluster = parse_devices("cpu:0");
  return problem;
}

std::string error_of(const Problem& problem) {
  try {
    check_problem(problem);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(AProblem, IsEvaluatedAtTheMicroBatchRoundedUp) {
  Problem problem = small_problem();
  problem.n_microbatches = 4;
  EXPECT_EQ(problem.batch_size(), 6);
  EXPECT_EQ(problem.micro_batch(), 2);
  problem.batch = 9;
  EXPECT_EQ(problem.micro_batch(), 3);
  EXPECT_DOUBLE_EQ(problem.node_time(NodeId{0}).count, problem.profile.nodes[0].forward.count / 2)
      << "profiled at 6, used at 3";
  EXPECT_EQ(error_of(problem), "no error");
}

TEST(AProblem, OfASmallExampleHasASampleForEachMicroBatch) {
  Problem problem = small_problem();  // traced at 6
  problem.n_microbatches = 8;
  EXPECT_EQ(problem.batch_size(), 8);
  EXPECT_EQ(problem.micro_batch(), 1);
  EXPECT_EQ(error_of(problem), "no error");
}

TEST(AProblem, RefusesMicroBatchesThatCannotBe) {
  Problem problem = small_problem();
  problem.n_microbatches = 7;
  problem.batch = 6;
  EXPECT_THAT(error_of(problem), HasSubstr("7 micro-batches of a batch of 6"));
  problem.n_microbatches = 0;
  EXPECT_THAT(error_of(problem), HasSubstr("n_microbatches is 0"));
  EXPECT_THROW(problem.micro_batch(), Error);
  Problem fixed = small_problem(true);
  EXPECT_EQ(error_of(fixed), "no error");
  EXPECT_EQ(fixed.micro_batch(), 0);
  fixed.n_microbatches = 2;
  EXPECT_THAT(error_of(fixed), HasSubstr("static"));
}

TEST(AProblem, RefusesSizesThatTheTraceIsNotRightFor) {
  Problem problem = small_problem();
  GraphData data = problem.graph.data();
  data.conditions.push_back({Expr(1), Relation::less, Expr::batch(), "m.py:3"});
  problem.graph = Graph::freeze(std::move(data));
  problem.profile = estimate(problem.graph, device_kind("cpu"));
  problem.n_microbatches = 3;
  EXPECT_EQ(error_of(problem), "no error");
  problem.n_microbatches = 6;
  EXPECT_THAT(error_of(problem), HasSubstr("a micro-batch of 1, but m.py:3 took its path because"));
  problem.n_microbatches = 1;
  problem.batch = 1;
  EXPECT_THAT(error_of(problem), HasSubstr("a batch of 1"));
}

TEST(AProblem, RefusesUnknownNamesAndForeignProfiles) {
  Problem problem = small_problem();
  problem.schedule = "zigzag";
  EXPECT_THAT(error_of(problem), HasSubstr("zigzag"));
  problem = small_problem();
  problem.profile = small_problem(true).profile;
  EXPECT_THAT(error_of(problem), HasSubstr(problem.graph.hash()));
  EXPECT_THROW(parse_objective("beauty"), Error);
  EXPECT_EQ(parse_objective("step"), Objective::step);
}

Timeline small_timeline() {
  Timeline timeline;
  timeline.graph_hash = "abc";
  timeline.devices = {"cpu:0", "cpu:1", "cpu:2"};
  timeline.num_stages = 2;
  timeline.n_microbatches = 1;
  Event event;
  event.device = DeviceId{0};
  event.stage = StageId{0};
  event.end = Nanoseconds{10};
  timeline.events.push_back(event);
  event.kind = EventKind::transfer;
  event.device = DeviceId{1};
  event.stage = StageId{1};
  event.start = Nanoseconds{10};
  event.end = Nanoseconds{12.5};
  event.bytes = Bytes{99};
  event.tensor = "h";
  event.from = DeviceId{0};
  timeline.events.push_back(event);
  MemoryKinds start{};
  of(start, MemoryKind::weights) = Bytes{5};
  MemoryKinds later = start;
  of(later, MemoryKind::saved) = Bytes{2};
  timeline.memory = {
      {DeviceId{1}, {{Nanoseconds{0}, Bytes{5}, start}, {Nanoseconds{3}, Bytes{7}, later}}}};
  return timeline;
}

TEST(ATimeline, ComesBackFromItsFile) {
  const Timeline timeline = small_timeline();
  EXPECT_EQ(parse_timeline(print_timeline(timeline)), timeline);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

// Files of 1.0 say how many bytes are in use, not what for.
TEST(ATimeline, IsReadFromFilesOfBothVersions) {
  Timeline old = small_timeline();
  for (MemoryPoint& point : old.memory[0].points) point.by_kind = {};
  const std::string text = print_timeline(old);
  EXPECT_EQ(text.find("kinds"), std::string::npos);
  const Timeline read = parse_timeline(replaced(text, "\"1.1\"", "\"1.0\""));
  EXPECT_EQ(read, old);
  EXPECT_TRUE(read.memory[0].kinds().empty());
  EXPECT_EQ(read.memory[0].peak(), Bytes{7});
  const std::vector<MemoryKind> kinds{MemoryKind::weights, MemoryKind::saved};
  EXPECT_EQ(parse_timeline(print_timeline(small_timeline())).memory[0].kinds(), kinds);
  EXPECT_THROW(parse_timeline(replaced(text, "\"1.1\"", "\"1.2\"")), Error);
}

TEST(ATimeline, RefusesKindsOfMemoryThatDoNotFitItsPoints) {
  const std::string text = print_timeline(small_timeline());
  EXPECT_THROW(parse_timeline(replaced(text, "\"saved\"", "\"spared\"")), Error);
  Timeline wrong = small_timeline();
  of(wrong.memory[0].points[1].by_kind, MemoryKind::saved) = Bytes{3};
  EXPECT_THROW(parse_timeline(print_timeline(wrong)), Error);
  const std::string first = replaced(text, "\"kinds\": {", "\"kinds\": {\"inputs\": [0], ");
  EXPECT_THROW(parse_timeline(first), Error);
  Timeline negative = small_timeline();
  negative.memory[0].points[0] = {Nanoseconds{0}, Bytes{-5}};
  EXPECT_THROW(parse_timeline(print_timeline(negative)), Error);
}

TEST(ATimeline, FindsTheMemoryOfADevice) {
  const Timeline timeline = small_timeline();
  EXPECT_EQ(timeline.find_memory(DeviceId{0}), nullptr);
  ASSERT_NE(timeline.find_memory(DeviceId{1}), nullptr);
  EXPECT_EQ(timeline.find_memory(DeviceId{1})->peak(), Bytes{7});
}

TEST(ATimeline, KnowsItsEndAndTheIdleShareOfTheDevicesInUse) {
  const Timeline timeline = small_timeline();
  EXPECT_EQ(timeline.end(), Nanoseconds{12.5});
  EXPECT_EQ(timeline.busy(DeviceId{1}), Nanoseconds{2.5});
  EXPECT_DOUBLE_EQ(timeline.bubble(), (0.2 + 0.8) / 2);
  EXPECT_EQ(Timeline{}.bubble(), 0);
}

TEST(ATimeline, RefusesEventsOutsideItsHeader) {
  std::string text = print_timeline(small_timeline());
  const std::string from = "\"stage\": 1";
  text.replace(text.find(from), from.size(), "\"stage\": 2");
  EXPECT_THROW(parse_timeline(text), Error);
  for (std::size_t length = 0; length + 2 < text.size(); length += 11) {
    EXPECT_THROW(parse_timeline(text.substr(0, length)), Error);
  }
}

}  // namespace
}  // namespace kerf
