// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kerf/base/id.h"

namespace kerf {

enum class Phase : std::uint8_t { forward, backward };
std::string_view to_string(Phase phase);

// One stage run once, in one phase, on one micro-batch.
struct Task {
  StageId stage;
  int microbatch = 0;
  Phase phase = Phase::forward;
  friend bool operator==(const Task&, const Task&) = default;
};

// A task of one step, by its number in TaskTable.
using TaskId = Id<struct TaskTag>;

// The tasks of one step, numbered, and what each of them waits for: the one place that knows what
// phases depend on. Whoever is indexed by TaskId need not look at the phase. Steps have forward
// tasks alone so far.
//
//   const TaskTable tasks(after, 4);
//   std::vector<Nanoseconds> ended(tasks.size());
//   tasks.for_each_wait(id, [&](TaskId before) { start = std::max(start, ended[before.index()]);
//   });
class TaskTable {
 public:
  // after[s]: the stages that stage s waits for.
  TaskTable(std::vector<std::vector<StageId>> after, int n_microbatches);

  std::size_t size() const { return after_.size() * n_microbatches_; }
  std::size_t num_stages() const { return after_.size(); }
  int n_microbatches() const { return static_cast<int>(n_microbatches_); }

  // A task that the step has.
  TaskId id(const Task& task) const {
    return TaskId{task.stage.index() * n_microbatches_ + static_cast<std::size_t>(task.microbatch)};
  }

  // Visits the tasks that must have ended before this one starts, wherever they run. What the
  // schedule has its device do before comes on top of that.
  template <class Visit>
  void for_each_wait(TaskId id, Visit&& visit) const {
    const std::size_t microbatch = id.index() % n_microbatches_;
    for (const StageId before : after_[id.index() / n_microbatches_]) {
      visit(TaskId{before.index() * n_microbatches_ + microbatch});
    }
  }

 private:
  std::vector<std::vector<StageId>> after_;
  std::size_t n_microbatches_;
};

}  // namespace kerf
