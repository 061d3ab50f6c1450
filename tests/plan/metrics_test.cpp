// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/graph/text.h"

namespace kerf {
namespace {

// x -> a -> b -> c, a also to c; w is a weight of a and c; the size n goes along.
const char* const kGraph = R"(kerf-graph 1.0
graph "skip"
batch 4
input %x: f32[B, 8] = "args.0"
weight @w: f32[8, 8] = parameter "w"
%a: f32[B, 8] = aten.linear.default(%x, @w)
%n: scalar i64 = aten.item.default(%a)
%b: f32[B, 2] = aten.narrow.default(%a, %n)
%c: f32[B, 8] = aten.combine.default(%a, %b, @w, %n)
%d: f32[B, 8] = aten.combine.default(%c, %a)
output "d" = %d
)";

std::vector<StageId> stages(std::initializer_list<int> of_nodes) {
  std::vector<StageId> ids;
  for (const int stage : of_nodes) ids.emplace_back(stage);
  return ids;
}

TEST(Cuts, HoldEachTensorOnceWithTheStagesThatUseIt) {
  const Graph graph = parse_graph(kGraph);
  const std::vector<Cut> cuts = find_cuts(graph, stages({0, 0, 1, 2, 2}), 3);
  ASSERT_EQ(cuts.size(), 2U);
  EXPECT_EQ(cuts[0].tensor, "a");
  EXPECT_EQ(cuts[0].bytes, Bytes{3 * 8 * 4});
  EXPECT_EQ(cuts[0].from, StageId{0});
  EXPECT_EQ(cuts[0].to, (std::vector<StageId>{StageId{1}, StageId{2}}));
  EXPECT_EQ(cuts[1].tensor, "b");
  EXPECT_EQ(cuts[1].bytes, Bytes{3 * 2 * 4});
}

TEST(Cuts, NeverHoldWeightsGraphInputsOrScalars) {
  const Graph graph = parse_graph(kGraph);
  for (const Cut& cut : find_cuts(graph, stages({0, 1, 2, 3, 4}), 1)) {
    EXPECT_NE(cut.tensor, "w");
    EXPECT_NE(cut.tensor, "x");
    EXPECT_NE(cut.tensor, "n");
  }
  const auto after = stage_dependencies(graph, stages({0, 1, 2, 3, 4}), 5);
  EXPECT_EQ(after[2], (std::vector<StageId>{StageId{0}, StageId{1}})) << "scalars order stages";
}

TEST(Loads, ChargeEachTensorOnceToEachReceivingDevice) {
  const Graph graph = parse_graph(kGraph);
  Cluster cluster;
  cluster.devices.resize(3);
  cluster.links.assign(9, Link{Nanoseconds{10}, 1e9, false});
  const std::vector<Cut> cuts = find_cuts(graph, stages({0, 0, 1, 2, 2}), 1);
  std::vector<Stage> placed(3);
  for (std::size_t s = 0; s < 3; ++s) {
    placed[s].device = DeviceId{s};
    placed[s].time = Nanoseconds{100.0 * static_cast<double>(s + 1)};
  }
  std::vector<DeviceLoad> loads = device_loads(placed, cuts, cluster, CommModel::link);
  EXPECT_DOUBLE_EQ(loads[0].busy().count, 100);
  EXPECT_DOUBLE_EQ(loads[1].communication.count, 10 + 32);
  EXPECT_DOUBLE_EQ(loads[2].communication.count, 10 + 32 + 10 + 8);
  EXPECT_DOUBLE_EQ(busiest(loads).count, 360);

  placed[1].device = DeviceId{2};  // stages 1 and 2 together: `a` comes once, `b` not at all
  loads = device_loads(placed, cuts, cluster, CommModel::link);
  EXPECT_DOUBLE_EQ(loads[2].communication.count, 10 + 32);
  EXPECT_DOUBLE_EQ(loads[2].compute.count, 500);
}

TEST(Loads, GoThroughHostMemoryUnderHostStaged) {
  const Graph graph = parse_graph(kGraph);
  Cluster cluster;
  cluster.devices.resize(3);
  for (Device& device : cluster.devices) device.host = false;
  cluster.links.assign(9, Link{Nanoseconds{10}, 1e9, false});
  cluster.link(DeviceId{0}, DeviceId{2}).latency = Nanoseconds{50};
  // `a` (32 bytes) from 0 to 1 and 2, `b` (8 bytes) from 1 to 2.
  const std::vector<Cut> cuts = find_cuts(graph, stages({0, 0, 1, 2, 2}), 1);
  std::vector<Stage> placed(3);
  for (std::size_t s = 0; s < 3; ++s) placed[s].device = DeviceId{s};
  std::vector<DeviceLoad> loads = device_loads(placed, cuts, cluster, CommModel::host_staged);
  EXPECT_DOUBLE_EQ(loads[0].communication.count, 50 + 32) << "once, over the slowest link";
  EXPECT_DOUBLE_EQ(loads[1].communication.count, (10 + 32) + (10 + 8));
  EXPECT_DOUBLE_EQ(loads[2].communication.count, (50 + 32) + (10 + 8));
  cluster.devices[1].host = true;
  loads = device_loads(placed, cuts, cluster, CommModel::host_staged);
  EXPECT_DOUBLE_EQ(loads[1].communication.count, 0) << "host memory is its own";
  EXPECT_DOUBLE_EQ(loads[2].communication.count, (50 + 32) + (10 + 8));
}

TEST(Loads, HideUnderComputeUnderOverlapped) {
  const Graph graph = parse_graph(kGraph);
  Cluster cluster;
  cluster.devices.resize(3);
  cluster.links.assign(9, Link{Nanoseconds{10}, 1e9, false});
  const std::vector<Cut> cuts = find_cuts(graph, stages({0, 0, 1, 2, 2}), 1);
  std::vector<Stage> placed(3);
  for (std::size_t s = 0; s < 3; ++s) placed[s].device = DeviceId{s};
  placed[0].time = Nanoseconds{60};
  placed[1].time = Nanoseconds{60};
  const std::vector<DeviceLoad> loads = device_loads(placed, cuts, cluster, CommModel::overlapped);
  EXPECT_DOUBLE_EQ(loads[0].communication.count, 2 * (10 + 32) - 60) << "two receivers, 60 hidden";
  EXPECT_DOUBLE_EQ(loads[1].communication.count, 0) << "18 ns are hidden";
  EXPECT_DOUBLE_EQ(loads[2].communication.count, 0) << "receivers do not pay";
}

TEST(CommunicationModels, AreKnownByName) {
  EXPECT_EQ(comm_model_names(), (std::vector<std::string>{"link", "host_staged", "overlapped"}));
  for (const std::string& name : comm_model_names()) {
    EXPECT_EQ(to_string(parse_comm_model(name)), name);
  }
  try {
    parse_comm_model("telepathy");
    FAIL() << "there is no such model";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'telepathy'; expected one of link, host_"));
  }
}

}  // namespace
}  // namespace kerf
