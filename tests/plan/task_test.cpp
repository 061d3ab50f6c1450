// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/schedule/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace kerf {
namespace {

// Stage 1 waits for stage 0, stage 2 for both.
TaskTable three_stages(int n_microbatches) {
  return TaskTable({{{}, {StageId{0}}, {StageId{0}, StageId{1}}}, {}, false}, n_microbatches);
}

TEST(ATaskTable, NumbersEveryTaskOnce) {
  const TaskTable tasks = three_stages(4);
  std::set<TaskId> seen;
  for (int stage = 0; stage < 3; ++stage) {
    for (int microbatch = 0; microbatch < 4; ++microbatch) {
      const TaskId id = tasks.id({StageId{stage}, microbatch});
      EXPECT_LT(id.index(), tasks.size());
      EXPECT_TRUE(seen.insert(id).second);
    }
  }
  EXPECT_EQ(seen.size(), tasks.size());
}

TEST(ATaskTable, LetsATaskWaitForTheSameMicroBatchOfItsStagesDependencies) {
  const TaskTable tasks = three_stages(4);
  const auto waits = [&](int stage, int microbatch) {
    std::vector<TaskId> before;
    tasks.for_each_wait(tasks.id({StageId{stage}, microbatch}),
                        [&](TaskId id) { before.push_back(id); });
    return before;
  };
  EXPECT_THAT(waits(0, 3), ::testing::IsEmpty());
  EXPECT_THAT(waits(1, 2), ::testing::ElementsAre(tasks.id({StageId{0}, 2})));
  EXPECT_THAT(waits(2, 3),
              ::testing::ElementsAre(tasks.id({StageId{0}, 3}), tasks.id({StageId{1}, 3})));
}

TEST(ATaskTable, MayBeEmpty) {
  EXPECT_EQ(TaskTable(StepShape{}, 4).size(), 0U);
  EXPECT_EQ(three_stages(0).size(), 0U);
}

}  // namespace
}  // namespace kerf
