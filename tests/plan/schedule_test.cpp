// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "kerf/base/error.h"
#include "kerf/base/rng.h"

namespace kerf {
namespace {

std::vector<DeviceId> on(std::initializer_list<int> devices) {
  std::vector<DeviceId> ids;
  for (const int device : devices) ids.emplace_back(device);
  return ids;
}

// One line a device, one column a clock tick (the sum of stage and micro-batch): which micro-batch
// which stage runs.
std::string draw(const Schedule& schedule) {
  std::string picture;
  for (const std::vector<Task>& tasks : schedule) {
    for (const Task& task : tasks) {
      picture += static_cast<char>('a' + task.stage.index());
      picture += std::to_string(task.microbatch) + " ";
    }
    picture += "\n";
  }
  return picture;
}

TEST(FillDrain, IsADiagonal) {
  EXPECT_EQ(draw(fill_drain(on({0, 1, 2}), 3, 4)),
            "a0 a1 a2 a3 \n"
            "b0 b1 b2 b3 \n"
            "c0 c1 c2 c3 \n");
}

TEST(FillDrain, InterleavesTheStagesOfADeviceByClock) {
  EXPECT_EQ(draw(fill_drain(on({0, 1, 0, 1}), 2, 3)),
            "a0 a1 a2 c0 c1 c2 \n"
            "b0 b1 b2 d0 d1 d2 \n");
  EXPECT_EQ(draw(fill_drain(on({0, 0}), 1, 3)), "a0 a1 b0 a2 b1 b2 \n");
}

TEST(FillDrain, LeavesUnusedDevicesIdle) {
  EXPECT_EQ(draw(fill_drain(on({2}), 3, 1)), "\n\na0 \n");
}

// Every stage waits for every earlier one, the worst that a graph can ask for.
TEST(FillDrain, NeverDeadlocksInAnyPlacement) {
  Rng rng(1);
  for (int round = 0; round < 500; ++round) {
    const auto num_devices = static_cast<int>(1 + rng.below(4));
    std::vector<DeviceId> devices;
    for (std::uint64_t s = 0; s < 1 + rng.below(7); ++s) {
      devices.emplace_back(rng.below(static_cast<std::uint64_t>(num_devices)));
    }
    const auto microbatches = static_cast<int>(1 + rng.below(5));
    const Schedule schedule = fill_drain(devices, num_devices, microbatches);
    std::set<std::pair<std::size_t, int>> done;
    std::vector<std::size_t> next(schedule.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t d = 0; d < schedule.size(); ++d) {
        if (next[d] == schedule[d].size()) continue;
        const Task& task = schedule[d][next[d]];
        bool ready = true;
        for (std::size_t s = 0; s < task.stage.index(); ++s) {
          ready &= done.contains({s, task.microbatch});
        }
        if (!ready) continue;
        EXPECT_EQ(devices[task.stage.index()], DeviceId{d});
        EXPECT_TRUE(done.insert({task.stage.index(), task.microbatch}).second);
        ++next[d];
        moved = true;
      }
    }
    EXPECT_EQ(done.size(), devices.size() * static_cast<std::size_t>(microbatches));
  }
}

TEST(Schedules, AreFoundByEitherNameAndListedWhenUnknown) {
  EXPECT_EQ(find_schedule("gpipe"), find_schedule("fill_drain"));
  EXPECT_EQ(find_schedule("zigzag"), nullptr);
  try {
    schedule_maker("zigzag");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("fill_drain, gpipe"));
  }
}

}  // namespace
}  // namespace kerf
