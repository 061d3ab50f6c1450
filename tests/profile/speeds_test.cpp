// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/speeds.h"

#include <gtest/gtest.h>

#include "kerf/device/devices.h"
#include "kerf/device/kind.h"
#include "kerf/graph/text.h"
#include "kerf/profile/estimate.h"

namespace kerf {
namespace {

const char* const kLinear = R"(kerf-graph 1.0
batch 64
input %x: f32[B, 4096] = "args.0"
weight @w: f32[4096, 4096] = parameter "w"
%y: f32[B, 4096] = aten.linear.default(%x, @w)
output "y" = %y
)";

TEST(ADeviceOfAnotherKind, GetsTheRatioOfTheEstimates) {
  const Graph graph = parse_graph(kLinear);
  const Profile profile = estimate(graph, device_kind("h200"));
  const std::vector<std::string> names{"h200:0", "cpu:0"};
  const Cluster cluster = with_relative_speeds(make_cluster(names), graph, profile);
  EXPECT_EQ(cluster.devices[0].speed, 1.0);
  EXPECT_GT(cluster.devices[1].speed, 0.0);
  EXPECT_LT(cluster.devices[1].speed, 0.2);
  EXPECT_NE(cluster.notes.back().find("cpu:0"), std::string::npos);
}

TEST(ADevice, KeepsTheSpeedItWasGivenAndThatOfItsOwnKind) {
  const Graph graph = parse_graph(kLinear);
  const Profile profile = estimate(graph, device_kind("cpu"));
  const std::vector<std::string> names{"cpu:0", "h200:0"};
  Cluster cluster = make_cluster(names);
  cluster.devices[1].speed = 7;
  EXPECT_EQ(with_relative_speeds(cluster, graph, profile), cluster);
}

}  // namespace
}  // namespace kerf
