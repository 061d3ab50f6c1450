// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Interleaved 1F1B (Narayanan et al., 2021): a device has several stages, looped (stage s on device
// s mod p), and takes a group of p micro-batches or a few more of a stage in turn. It warms up with
// enough forwards for the first backward to come back, then alternates:
//
//   stages 0 and 2 on device 0   0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 ...
//   stages 1 and 3 on device 1       1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 ...
//
// Idle time is that of 1f1b divided by the stages per device, for p micro-batches and more: groups
// are of p where that divides them, and else as equal as can be (microbatch_groups), so that no
// last group is too small to keep all devices busy. Where the stages are not looped, or wait for
// each other in other ways, a device whose next task could never start takes the first of its list
// that can: by construction no placement deadlocks.
#include <algorithm>
#include <tuple>

#include "kerf/base/interrupt.h"
#include "kerf/plan/schedule/greedy.h"

namespace kerf {
namespace {

// By micro-batch: the group that it is in, from 0 on. As many groups as the devices go into the
// micro-batches, so that none has fewer micro-batches than there are devices; the larger come
// first.
std::vector<int> microbatch_groups(int n_microbatches, int devices) {
  const int groups = std::max(1, n_microbatches / devices);
  const int least = n_microbatches / groups;
  const int larger = n_microbatches % groups;  // by one
  std::vector<int> group_of;
  for (int group = 0; group < groups; ++group) {
    const int size = least + (group < larger ? 1 : 0);
    group_of.insert(group_of.end(), static_cast<std::size_t>(size), group);
  }
  return group_of;
}

// The lists of a looped pipeline, whether they can be run or not.
Schedule looped_lists(const ScheduleRequest& request) {
  const int devices = count_used(request);
  const std::vector<int> group_of = microbatch_groups(request.n_microbatches, devices);
  const auto largest = static_cast<int>(std::count(group_of.begin(), group_of.end(), 0));
  std::vector<std::vector<StageId>> stages(static_cast<std::size_t>(request.num_devices));
  std::vector<int> rank(stages.size(), 0);  // devices by their first stage
  int used = 0;
  for (std::size_t s = 0; s < request.stage_devices.size(); ++s) {
    const std::size_t device = request.stage_devices[s].index();
    if (stages[device].empty()) rank[device] = used++;
    stages[device].emplace_back(s);
  }
  Schedule lists(stages.size());
  for (std::size_t d = 0; d < stages.size(); ++d) {
    std::vector<Task> by_phase[2];
    for (const StageId stage : stages[d]) {
      for (const Phase phase : {Phase::forward, Phase::backward}) {
        if (!request.shape.has(stage, phase)) continue;
        for (int m = 0; m < request.n_microbatches; ++m) {
          by_phase[static_cast<std::size_t>(phase)].push_back({stage, m, phase});
        }
      }
    }
    for (std::vector<Task>& tasks : by_phase) {
      std::sort(tasks.begin(), tasks.end(), [&](const Task& a, const Task& b) {
        const auto turn = [&](const Task& task) {
          const int stage = static_cast<int>(task.stage.index());
          return std::tuple(group_of[static_cast<std::size_t>(task.microbatch)],
                            task.phase == Phase::forward ? stage : -stage, task.microbatch);
        };
        return turn(a) < turn(b);
      });
    }
    const auto& [forwards, backwards] = by_phase;
    const int behind = devices - 1 - rank[d];
    const int more = static_cast<int>(stages[d].size()) - 1;
    const auto warm_up = std::min<std::size_t>(
        forwards.size(), static_cast<std::size_t>(more > 0 ? 2 * behind + more * largest : behind));
    lists[d].assign(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(warm_up));
    for (std::size_t f = warm_up, b = 0; f < forwards.size() || b < backwards.size(); ++f, ++b) {
      if (f < forwards.size()) lists[d].push_back(forwards[f]);
      if (b < backwards.size()) lists[d].push_back(backwards[b]);
    }
  }
  return lists;
}

// The same tasks in an order that can be run: as listed wherever that goes on.
class Runnable {
 public:
  Runnable(Schedule lists, const TaskTable& tasks)
      : lists_(std::move(lists)),
        tasks_(tasks),
        at_(lists_.size(), 0),
        taken_(tasks.size()),
        out_(lists_.size()) {}

  Schedule run() {
    for (std::size_t left = tasks_.num_tasks(); left > 0;) {
      poll_interrupt();
      std::size_t moved = 0;
      for (std::size_t d = 0; d < lists_.size(); ++d) {
        while (take(d, head(d))) ++moved;
      }
      if (moved == 0) moved = take_first_that_can();
      left -= moved;
    }
    return std::move(out_);
  }

 private:
  bool is_taken(const Task& task) const { return taken_[tasks_.id(task).index()]; }
  std::size_t head(std::size_t d) {
    while (at_[d] < lists_[d].size() && is_taken(lists_[d][at_[d]])) ++at_[d];
    return at_[d];
  }
  bool take(std::size_t d, std::size_t place) {
    if (place == lists_[d].size() || is_taken(lists_[d][place])) return false;
    const TaskId id = tasks_.id(lists_[d][place]);
    bool ready = true;
    tasks_.for_each_wait(id, [&](TaskId before) { ready = ready && taken_[before.index()]; });
    if (!ready) return false;
    taken_[id.index()] = true;
    out_[d].push_back(lists_[d][place]);
    return true;
  }
  std::size_t take_first_that_can() {
    for (std::size_t behind = 1;; ++behind) {
      for (std::size_t d = 0; d < lists_.size(); ++d) {
        if (at_[d] + behind < lists_[d].size() && take(d, at_[d] + behind)) return 1;
      }
    }
  }

  Schedule lists_;
  const TaskTable& tasks_;
  std::vector<std::size_t> at_;  // by device: the first of its list that is not taken
  std::vector<bool> taken_;      // by TaskId
  Schedule out_;
};

}  // namespace

Schedule interleaved(const ScheduleRequest& request) {
  if (!request.shape.training()) return fill_drain(request);
  check_amount(request.stage_devices.size() * request.shape.num_phases(), request.n_microbatches);
  const TaskTable tasks(request.shape, request.n_microbatches);
  return Runnable(looped_lists(request), tasks).run();
}

}  // namespace kerf
