// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/recording_memory.h"

#include <gtest/gtest.h>

#include "kerf/device/devices.h"

namespace kerf {
namespace {

Stage stage(int device, std::int64_t inputs, std::int64_t outputs, std::int64_t activations) {
  Stage out;
  out.device = DeviceId(device);
  out.inputs = {inputs};
  out.outputs = {outputs};
  out.activations = {activations};
  return out;
}

TEST(RecordingMemory, CountsWhatEachStageKeepsAndTheLargestInBetweenOnce) {
  Plan plan;
  plan.cluster = make_cluster(std::vector<std::string>{"cuda:0", "cpu:0"});
  plan.stages = {stage(0, 1, 2, 100), stage(0, 4, 8, 300), stage(1, 16, 32, 900)};
  EXPECT_EQ(recording_memory(plan, DeviceId(0)), Bytes{1 + 2 + 4 + 8 + 300});
  EXPECT_EQ(recording_memory(plan, DeviceId(1)), Bytes{0}) << "a host records nothing";
}

TEST(RecordingMemory, IsThatOfTheWholeCard) {
  Plan plan;
  plan.cluster = make_cluster(std::vector<std::string>{"cuda:0", "cuda:0"});
  plan.stages = {stage(0, 1, 2, 100), stage(1, 4, 8, 300)};
  EXPECT_EQ(recording_memory(plan, DeviceId(0)), Bytes{415});
  EXPECT_EQ(recording_memory(plan, DeviceId(1)), Bytes{415});
}

}  // namespace
}  // namespace kerf
