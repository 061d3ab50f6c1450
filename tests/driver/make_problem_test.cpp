// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/make_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/device/kind.h"
#include "kerf/profile/estimate.h"
#include "tests/driver/small_problem.h"

namespace kerf {
namespace {

using ::testing::HasSubstr;

TEST(MakingAProblem, EstimatesForTheAcceleratorAtTheMicroBatch) {
  ProblemSettings settings;
  settings.batch = 12;
  settings.n_microbatches = 4;
  const Problem problem = small_problem("cpu:0,h200:0", settings);
  EXPECT_EQ(problem.profile.device_kind, "h200");
  EXPECT_EQ(problem.profile.batch, 3);
  EXPECT_EQ(problem.cluster.devices[1].speed, 1);
  EXPECT_NE(problem.cluster.devices[0].speed, 1) << "it is not of the profiled kind";
  ASSERT_FALSE(problem.cluster.notes.empty());
  EXPECT_THAT(problem.cluster.notes.back(), HasSubstr("cpu:0"));
}

TEST(MakingAProblem, TakesTheProfileThatIsGiven) {
  const Profile profile = estimate(small_graph(), device_kind("cpu"), 2);
  const Problem problem = make_problem(small_graph(), parse_devices("cpu:0,h200:0"), profile);
  EXPECT_EQ(problem.profile.device_kind, "cpu");
  EXPECT_EQ(problem.profile.batch, 2);
  EXPECT_EQ(problem.cluster.devices[0].speed, 1);
  EXPECT_NE(problem.cluster.devices[1].speed, 1);
}

TEST(MakingAProblem, RefusesWhatNoEstimateCanBeMadeFor) {
  EXPECT_THROW(make_problem(small_graph(), Cluster{}), Error);
  EXPECT_THROW(small_problem("cpu:0", {.n_microbatches = 0}), Error);
}

}  // namespace
}  // namespace kerf
