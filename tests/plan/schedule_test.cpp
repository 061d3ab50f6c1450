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

// Stages that each wait for the one before.
StepShape chain_of(std::size_t stages, bool training, bool apart = false) {
  StepShape shape;
  for (std::size_t s = 0; s < stages; ++s) {
    shape.after.emplace_back();
    if (s > 0) shape.after[s].emplace_back(s - 1);
    if (training) shape.backward.push_back(true);
  }
  shape.apart = training && apart;
  return shape;
}

// A step without backward.
Schedule forward_only(ScheduleMaker make, const std::vector<DeviceId>& devices, int num_devices,
                      int microbatches) {
  return make({devices, num_devices, microbatches, chain_of(devices.size(), false)});
}

// "0F1 0B0 ..." a line a device: stage, phase, micro-batch.
std::string draw_phases(const Schedule& schedule) {
  std::string picture;
  for (const std::vector<Task>& tasks : schedule) {
    for (const Task& task : tasks) {
      picture += std::to_string(task.stage.index()) + letter(task.phase) +
                 std::to_string(task.microbatch) + " ";
    }
    picture += "\n";
  }
  return picture;
}

// What a schedule comes to when every forward and each half of a backward takes a tick and nothing
// else takes any time.
struct Ran {
  int end = 0;
  std::vector<int> busy;       // by device
  std::vector<int> most_live;  // by device: forwards whose last phase has not ended
  std::size_t tasks = 0;
};
Ran run(const Schedule& schedule, const ScheduleRequest& request) {
  const TaskTable table(request.shape, request.n_microbatches);
  constexpr int kNotYet = -1;
  std::vector<int> ended(table.size(), kNotYet);
  std::vector<std::size_t> next(schedule.size());
  std::vector<int> free(schedule.size());
  std::vector<int> live(schedule.size());
  Ran ran{0, std::vector<int>(schedule.size()), std::vector<int>(schedule.size()), 0};
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t d = 0; d < schedule.size(); ++d) {
      if (next[d] == schedule[d].size()) continue;
      const Task& task = schedule[d][next[d]];
      EXPECT_EQ(request.stage_devices[task.stage.index()], DeviceId{d});
      int start = free[d];
      bool ready = true;
      table.for_each_wait(table.id(task), [&](TaskId before) {
        ready = ready && ended[before.index()] != kNotYet;
        start = std::max(start, ended[before.index()]);
      });
      if (!ready) continue;
      EXPECT_EQ(ended[table.id(task).index()], kNotYet) << "a task twice";
      const bool whole = task.phase == Phase::backward && !request.shape.apart;
      const int time = whole ? 2 : 1;
      free[d] = ended[table.id(task).index()] = start + time;
      ran.busy[d] += time;
      ran.end = std::max(ran.end, free[d]);
      const Phase last = request.shape.apart ? Phase::weight_gradient : Phase::backward;
      if (task.phase == Phase::forward) ++live[d];
      ran.most_live[d] = std::max(ran.most_live[d], live[d]);
      if (task.phase == last) --live[d];
      ++next[d];
      ++ran.tasks;
      moved = true;
    }
  }
  return ran;
}

// v stages on each of p devices, looped.
ScheduleRequest looped(int p, int v, int microbatches, bool apart) {
  ScheduleRequest request;
  for (int s = 0; s < p * v; ++s) request.stage_devices.emplace_back(s % p);
  request.num_devices = p;
  request.n_microbatches = microbatches;
  request.shape = chain_of(request.stage_devices.size(), true, apart);
  return request;
}

TEST(FillDrain, IsADiagonal) {
  EXPECT_EQ(draw(forward_only(fill_drain, on({0, 1, 2}), 3, 4)),
            "a0 a1 a2 a3 \n"
            "b0 b1 b2 b3 \n"
            "c0 c1 c2 c3 \n");
}

TEST(FillDrain, InterleavesTheStagesOfADeviceByClock) {
  EXPECT_EQ(draw(forward_only(fill_drain, on({0, 1, 0, 1}), 2, 3)),
            "a0 a1 a2 c0 c1 c2 \n"
            "b0 b1 b2 d0 d1 d2 \n");
  EXPECT_EQ(draw(forward_only(fill_drain, on({0, 0}), 1, 3)), "a0 a1 b0 a2 b1 b2 \n");
}

TEST(FillDrain, LeavesUnusedDevicesIdle) {
  EXPECT_EQ(draw(forward_only(fill_drain, on({2}), 3, 1)), "\n\na0 \n");
}

TEST(FillDrain, RunsBackwardsFromTheLastStageToTheFirst) {
  EXPECT_EQ(draw_phases(fill_drain(looped(2, 1, 2, false))),
            "0F0 0F1 0B0 0B1 \n"
            "1F0 1F1 1B0 1B1 \n");
}

TEST(OneForwardOneBackward, RunsABackwardAsSoonAsItCan) {
  EXPECT_EQ(draw_phases(one_forward_one_backward(looped(3, 1, 4, false))),
            "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3 \n"
            "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3 \n"
            "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 \n");
}

TEST(Interleaved, TakesTurnsByGroupsOfMicroBatches) {
  EXPECT_EQ(draw_phases(interleaved(looped(2, 2, 4, false))),
            "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3 \n"
            "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3 \n");
}

TEST(ZeroBubble, FillsGapsWithGradientsOfWeights) {
  EXPECT_EQ(draw_phases(zero_bubble(looped(2, 1, 3, true))),
            "0F0 0F1 0B0 0W0 0F2 0B1 0W1 0B2 0W2 \n"
            "1F0 1B0 1F1 1W0 1B1 1F2 1B2 1W1 1W2 \n");
}

// F, input and weight gradients take a tick of a whole device each: idle is the end less 24. The
// published table, for p = 4 and m = 8.
struct Row {
  ScheduleMaker make;
  bool apart;
  int stages_per_device;
  double idle;
  std::vector<int> live;  // by device, in stages
};

TEST(Schedules, StandIdleAndKeepAsPublished) {
  const Row rows[] = {
      {fill_drain, false, 1, 9, {8, 8, 8, 8}},
      {one_forward_one_backward, false, 1, 9, {4, 3, 2, 1}},
      {interleaved, false, 2, 4.5, {11, 9, 7, 5}},
      {interleaved, false, 4, 2.25, {19, 17, 15, 13}},
      {zero_bubble, true, 1, 3, {4, 4, 4, 4}},
      {zero_bubble, true, 2, 1.5, {8, 8, 8, 8}},
      {zero_bubble, true, 4, 0.75, {16, 16, 16, 16}},
  };
  for (const Row& row : rows) {
    const ScheduleRequest request = looped(4, row.stages_per_device, 8, row.apart);
    const Ran ran = run(row.make(request), request);
    EXPECT_EQ(ran.end - 24 * row.stages_per_device, row.idle * row.stages_per_device);
    EXPECT_EQ(ran.most_live, row.live) << row.stages_per_device;
  }
}

// What `kerf schedules` prints, in ticks of a stage: (p-1) / (work + p-1) of the step.
TEST(Schedules, StandIdleAsListedWhateverTheNumberOfMicroBatches) {
  for (int p = 2; p <= 5; ++p) {
    for (int m = p; m <= 4 * p; ++m) {
      for (int v = 1; v <= 4; ++v) {
        const auto idle = [&](ScheduleMaker make, bool apart) {
          const ScheduleRequest request = looped(p, v, m, apart);
          return run(make(request), request).end - 3 * v * m;
        };
        const std::string at =
            " p=" + std::to_string(p) + " v=" + std::to_string(v) + " m=" + std::to_string(m);
        EXPECT_EQ(idle(interleaved, false), 3 * (p - 1)) << at;
        const bool divides = m % p == 0 || v == 1;
        EXPECT_LE(idle(zero_bubble, true), p - 1 + (divides ? 0 : 1)) << at;
        if (v > 1) continue;
        EXPECT_EQ(idle(fill_drain, false), 3 * (p - 1)) << at;
        EXPECT_EQ(idle(one_forward_one_backward, false), 3 * (p - 1)) << at;
      }
    }
  }
}

// Of v times as long stages, one a device.
TEST(Interleaved, IsNeverLongerThanPlainOneForwardOneBackward) {
  for (int p = 2; p <= 5; ++p) {
    for (int v = 2; v <= 4; ++v) {
      for (int m = 1; m <= 3 * p; ++m) {
        const ScheduleRequest many = looped(p, v, m, false);
        const ScheduleRequest one = looped(p, 1, m, false);
        EXPECT_LE(run(interleaved(many), many).end, v * run(one_forward_one_backward(one), one).end)
            << p << " " << v << " " << m;
      }
    }
  }
}

// Skips, several stages on a device, stages without a backward, fewer micro-batches than stages.
TEST(Schedules, NeverDeadlockOnAnyStageGraph) {
  Rng rng(1);
  for (int round = 0; round < 1500; ++round) {
    ScheduleRequest request;
    request.num_devices = static_cast<int>(1 + rng.below(4));
    const std::uint64_t stages = 1 + rng.below(8);
    const bool training = rng.below(4) != 0;
    for (std::uint64_t s = 0; s < stages; ++s) {
      request.stage_devices.emplace_back(
          rng.below(static_cast<std::uint64_t>(request.num_devices)));
      request.shape.after.emplace_back();
      for (std::uint64_t before = 0; before < s; ++before) {
        if (rng.below(3) == 0) request.shape.after[s].emplace_back(before);
      }
      if (training) request.shape.backward.push_back(rng.below(5) != 0);
    }
    request.n_microbatches = static_cast<int>(1 + rng.below(7));
    for (const ScheduleKind& kind : schedule_kinds()) {
      request.shape.apart = training && kind.apart;
      const TaskTable table(request.shape, request.n_microbatches);
      EXPECT_EQ(run(kind.make(request), request).tasks, table.num_tasks()) << kind.name;
    }
  }
}

TEST(Schedules, AreFoundByKerfsAndTorchsNamesInAnyCase) {
  EXPECT_EQ(find_schedule("gpipe"), find_schedule("fill_drain"));
  EXPECT_EQ(find_schedule("ScheduleGPipe"), find_schedule("fill_drain"));
  EXPECT_EQ(find_schedule("1F1B")->name, "1f1b");
  EXPECT_EQ(find_schedule("Interleaved1F1B")->name, "interleaved_1f1b");
  EXPECT_EQ(find_schedule("InterleavedZeroBubble")->name, "zero_bubble");
  EXPECT_EQ(find_schedule("zigzag"), nullptr);
}

TEST(Schedules, AreListedWhenUnknown) {
  try {
    schedule_kind("zero_buble");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("fill_drain, gpipe"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("did you mean 'zero_bubble'?"));
  }
}

}  // namespace
}  // namespace kerf
