// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "kerf/base/rng.h"
#include "kerf/profile/probe_cost.h"

namespace kerf {
namespace {

std::vector<double> replayed(const std::vector<IssueTimes>& nodes) {
  std::vector<double> out;
  for (const Nanoseconds added : replay(nodes)) out.push_back(added.count);
  return out;
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TEST(AReplay, OfAHostThatIsBehindIsTheHostsTimeAndTheLastWork) {
  EXPECT_EQ(replayed({{{10}, {1}}, {{10}, {2}}, {{10}, {3}}}), (std::vector<double>{11, 11, 11}));
}

TEST(AReplay, OfADeviceThatIsBehindIsTheFirstIssueAndTheDevicesTime) {
  EXPECT_EQ(replayed({{{1}, {10}}, {{1}, {20}}, {{1}, {30}}}), (std::vector<double>{11, 20, 30}));
}

TEST(AReplay, LetsTheHostRunAheadWhileTheDeviceIsBusy) {
  // Issued at 4, 8, 9, 10; done at 5, 8 + 6, 16, 17.
  EXPECT_EQ(replayed({{{4}, {1}}, {{4}, {6}}, {{1}, {2}}, {{1}, {1}}}),
            (std::vector<double>{5, 9, 2, 1}));
}

TEST(AReplay, CountsTheHostForNodesThatLaunchNothing) {
  EXPECT_EQ(replayed({{{5}, {0}}, {{5}, {0}}, {{5}, {4}}}), (std::vector<double>{5, 5, 9}));
  EXPECT_EQ(replayed({{{1}, {9}}, {{2}, {0}}}), (std::vector<double>{10, 0}));
}

TEST(AReplay, OfNothingIsEmpty) { EXPECT_TRUE(replay({}).empty()); }

TEST(AReplay, AddsUpToTheLatestChainOfHostThenDevice) {
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<IssueTimes> nodes(1 + rng.next() % 30);
    for (IssueTimes& node : nodes) {
      node.issue = {static_cast<double>(rng.next() % 20)};
      node.device = {static_cast<double>(rng.next() % 20)};
    }
    // The run ends when, for some node, all before it were issued and the device did the rest.
    double end = 0;
    for (std::size_t last = 0; last < nodes.size(); ++last) {
      double chain = 0;
      for (std::size_t n = 0; n <= last; ++n) chain += nodes[n].issue.count;
      for (std::size_t n = last; n < nodes.size(); ++n) chain += nodes[n].device.count;
      end = std::max(end, chain);
    }
    EXPECT_DOUBLE_EQ(sum(replayed(nodes)), end);
  }
}

TEST(ProbeCost, IsTheSameForEachAndLeavesTheTotal) {
  EXPECT_EQ(without_probe_cost({5, 7, 12}, 18), (std::vector<double>{3, 5, 10}));
}

TEST(ProbeCost, TakesNoMoreThanThereIs) {
  // Views launch nothing: their time is all probe.
  EXPECT_EQ(without_probe_cost({2, 10, 2, 12}, 16), (std::vector<double>{0, 7, 0, 9}));
}

TEST(ProbeCost, ScalesTimesThatAddUpToLess) {
  EXPECT_EQ(without_probe_cost({1, 3}, 8), (std::vector<double>{2, 6}));
  EXPECT_EQ(without_probe_cost({0, 0}, 8), (std::vector<double>{0, 0}));
  EXPECT_EQ(without_probe_cost({1, 3}, 0), (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace kerf
