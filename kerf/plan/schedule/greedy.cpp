// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/schedule/greedy.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "kerf/base/interrupt.h"

namespace kerf {
namespace {

class Turns {
 public:
  Turns(const ScheduleRequest& request, const std::vector<int>& limits, const Rule& rule)
      : request_(request),
        limits_(limits),
        rule_(rule),
        tasks_(request.shape, request.n_microbatches),
        group_(count_used(request)),
        ended_(tasks_.size(), kNotYet),
        next_(request.shape.num_stages() * kNumPhases, 0),
        live_(request.shape.num_stages(), 0),
        free_(static_cast<std::size_t>(request.num_devices), 0),
        stages_(free_.size()),
        schedule_(free_.size()) {
    for (std::size_t s = 0; s < request.stage_devices.size(); ++s) {
      stages_[request.stage_devices[s].index()].emplace_back(s);
    }
  }

  Schedule run() {
    for (std::size_t left = tasks_.num_tasks(); left > 0;) {
      poll_interrupt();
      std::size_t taken = 0;
      for (std::size_t d = 0; d < free_.size(); ++d) {
        if (free_[d] > now_) continue;
        if (const std::optional<Task> task = rule_(choice(d))) taken += start(*task);
      }
      left -= taken;
      if (left == 0) break;
      if (!advance_clock() && taken == 0) left -= start(first_forward());
    }
    return std::move(schedule_);
  }

 private:
  static constexpr std::size_t kNumPhases = 3;
  static constexpr long kNotYet = -1;

  int& next(StageId stage, Phase phase) {
    return next_[static_cast<std::size_t>(phase) * request_.shape.num_stages() + stage.index()];
  }
  // The next task of a stage in a phase, if it can start now.
  std::optional<Task> startable(StageId stage, Phase phase) {
    if (!request_.shape.has(stage, phase)) return std::nullopt;
    const Task task{stage, next(stage, phase), phase};
    if (task.microbatch >= request_.n_microbatches) return std::nullopt;
    bool ready = true;
    tasks_.for_each_wait(tasks_.id(task), [&](TaskId before) {
      const long end = ended_[before.index()];
      ready = ready && end != kNotYet && end <= now_;
    });
    return ready ? std::optional<Task>(task) : std::nullopt;
  }

  // Stages of a device take turns group by group of as many micro-batches as there are devices.
  std::tuple<int, int, int> turn(const Task& task) const {
    const int stage = static_cast<int>(task.stage.index());
    return {task.microbatch / group_, task.phase == Phase::forward ? stage : -stage,
            task.microbatch % group_};
  }

  bool within_limit(StageId stage) const {
    return limits_.empty() || !request_.shape.has(stage, Phase::backward) ||
           live_[stage.index()] < limits_[stage.index()];
  }

  Choice choice(std::size_t device) {
    Choice choice;
    choice.device = device;
    for (const StageId stage : stages_[device]) {
      choice.live += live_[stage.index()];
      choice.forwards_left |= next(stage, Phase::forward) < request_.n_microbatches;
      for (const Phase phase : kPhases) {
        if (phase == Phase::forward && !within_limit(stage)) continue;
        const std::optional<Task> task = startable(stage, phase);
        std::optional<Task>& first = choice.ready[static_cast<std::size_t>(phase)];
        if (task && (!first || turn(*task) < turn(*first))) first = task;
      }
    }
    if (!schedule_[device].empty()) choice.last = schedule_[device].back().phase;
    return choice;
  }

  std::size_t start(const Task& task) {
    const std::size_t device = request_.stage_devices[task.stage.index()].index();
    const bool whole = task.phase == Phase::backward && !request_.shape.apart;
    free_[device] = std::max(free_[device], now_) + (whole ? 2 : 1);
    ended_[tasks_.id(task).index()] = free_[device];
    ++next(task.stage, task.phase);
    if (request_.shape.has(task.stage, Phase::backward)) {
      const Phase last = request_.shape.apart ? Phase::weight_gradient : Phase::backward;
      if (task.phase == Phase::forward) ++live_[task.stage.index()];
      if (task.phase == last) --live_[task.stage.index()];
    }
    schedule_[device].push_back(task);
    return 1;
  }

  // To the next moment at which a device becomes free; false: all are.
  bool advance_clock() {
    long soonest = -1;
    for (const long each : free_) {
      if (each > now_ && (soonest < 0 || each < soonest)) soonest = each;
    }
    if (soonest < 0) return false;
    now_ = soonest;
    return true;
  }

  // Of the forwards that can start the one of the earliest micro-batch: with all devices at rest
  // some task can always start, and the rules take every backward that can.
  Task first_forward() {
    std::optional<Task> first;
    for (std::size_t s = 0; s < request_.shape.num_stages(); ++s) {
      for (const Phase phase : kPhases) {
        const std::optional<Task> task = startable(StageId{s}, phase);
        if (task && (!first || task->microbatch < first->microbatch)) first = task;
      }
    }
    return first.value();
  }

  const ScheduleRequest& request_;
  const std::vector<int>& limits_;
  const Rule& rule_;
  TaskTable tasks_;
  int group_;
  std::vector<long> ended_;                   // by TaskId
  std::vector<int> next_;                     // by phase and stage: the micro-batch that comes next
  std::vector<int> live_;                     // by stage
  std::vector<long> free_;                    // by device: from when on
  std::vector<std::vector<StageId>> stages_;  // by device
  Schedule schedule_;
  long now_ = 0;
};

}  // namespace

Schedule take_turns(const ScheduleRequest& request, const std::vector<int>& limits,
                    const Rule& rule) {
  check_amount(request.stage_devices.size() * request.shape.num_phases(), request.n_microbatches);
  return Turns(request, limits, rule).run();
}

std::vector<int> stages_to_the_end(const StepShape& shape) {
  std::vector<int> count(shape.num_stages(), 1);
  for (std::size_t s = shape.num_stages(); s-- > 0;) {
    if (shape.training() && !shape.backward[s]) continue;  // nobody's gradient waits for it
    for (const StageId before : shape.after[s]) {
      int& earlier = count[before.index()];
      earlier = std::max(earlier, count[s] + 1);
    }
  }
  return count;
}

int count_used(const ScheduleRequest& request) {
  const std::set<DeviceId> used(request.stage_devices.begin(), request.stage_devices.end());
  return std::max(1, static_cast<int>(used.size()));
}

}  // namespace kerf
