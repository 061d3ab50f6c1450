// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/load.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "kerf/device/devices.h"

namespace kerf {
namespace {

// By the drawing in the header: device i is busy in turns i .. i + n - 1.
double counted_share(int devices, int n) {
  int shared = 0;
  for (int i = 0; i < devices; ++i) {
    for (int j = 0; j < devices; ++j) {
      for (int turn = i; i != j && turn < i + n; ++turn) shared += turn >= j && turn < j + n;
    }
  }
  return static_cast<double>(shared) / (devices * (devices - 1) * n);
}

Profile two_figures() {
  Profile profile;
  profile.device_kind = "cpu";
  NodeCost cost;
  cost.forward = {100};
  cost.forward_under_load = {140};
  cost.backward = {200};
  cost.backward_weights = {50};
  cost.backward_under_load = {300};
  profile.nodes = {cost};
  return profile;
}

TEST(NeighboursOfADevice, AreBusyAsTheTurnsOfTheScheduleSay) {
  for (int devices = 2; devices < 6; ++devices) {
    for (int n = 1; n < 9; ++n) {
      EXPECT_DOUBLE_EQ(busy_share(devices, n), counted_share(devices, n)) << devices << " " << n;
    }
  }
  EXPECT_EQ(busy_share(1, 8), 0);
  EXPECT_EQ(busy_share(2, 1), 0);
  EXPECT_DOUBLE_EQ(busy_share(2, 4), 0.75);
}

TEST(AProfileUnderLoad, GoesFromOneFigureToTheOtherAsFarAsNeighboursAreBusy) {
  const Profile mixed = with_load(two_figures(), parse_devices("cpu:0,cpu:1", {{0, 1}, {}}), 4);
  EXPECT_DOUBLE_EQ(mixed.nodes[0].forward.count, 130);
  EXPECT_DOUBLE_EQ(mixed.nodes[0].backward.count, 275);
  EXPECT_DOUBLE_EQ(mixed.nodes[0].backward_weights.count, 50 * 275.0 / 200);
}

TEST(AProfileUnderLoad, HasOneFigureANodeOnceItIsMixed) {
  const Cluster two = parse_devices("cpu:0,cpu:1", {{0, 1}, {}});
  const Profile mixed = with_load(two_figures(), two, 4);
  EXPECT_TRUE(has_load(two_figures()));
  EXPECT_FALSE(has_load(mixed));
  EXPECT_EQ(with_load(mixed, two, 8), mixed);
}

TEST(AProfileUnderLoad, IsTheOneAloneForADeviceWithoutNeighbours) {
  for (const char* devices : {"cpu:0", "cpu:0,cuda:0"}) {
    const Profile mixed = with_load(two_figures(), parse_devices(devices, {{0, 1}, {}}), 4);
    EXPECT_EQ(mixed.nodes[0].forward.count, 100) << devices;
    EXPECT_EQ(mixed.nodes[0].backward.count, 200) << devices;
  }
}

}  // namespace
}  // namespace kerf
