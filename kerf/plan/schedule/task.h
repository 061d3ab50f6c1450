// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kerf/base/id.h"

namespace kerf {

// What a stage does with a micro-batch. Where gradients of weights are made apart, `backward` makes
// those of tensors alone, for which other stages wait.
enum class Phase : std::uint8_t { forward, backward, weight_gradient };
inline constexpr Phase kPhases[] = {Phase::forward, Phase::backward, Phase::weight_gradient};
std::string_view to_string(Phase phase);
char letter(Phase phase);  // F, B, W

// One stage run once, in one phase, on one micro-batch.
struct Task {
  StageId stage;
  int microbatch = 0;
  Phase phase = Phase::forward;
  friend bool operator==(const Task&, const Task&) = default;
};

// What the stages of a step do, and which wait for which.
struct StepShape {
  std::vector<std::vector<StageId>> after;  // by stage: those it waits for
  std::vector<bool> backward;               // by stage: has it a backward? Empty: no stage has
  bool apart = false;                       // gradients of weights are tasks of their own

  std::size_t num_stages() const { return after.size(); }
  bool training() const { return !backward.empty(); }
  std::size_t num_phases() const { return !training() ? 1 : apart ? 3 : 2; }
  bool has(StageId stage, Phase phase) const {
    return phase == Phase::forward ||
           (training() && backward[stage.index()] && (phase == Phase::backward || apart));
  }
};

// A stage in one phase. Passes are numbered phase by phase, so that the forward passes are the
// stages, and whoever handles stages handles passes: a training step is a step of more stages.
using PassId = StageId;

inline PassId pass_of(const StepShape& shape, StageId stage, Phase phase) {
  return PassId{static_cast<std::size_t>(phase) * shape.num_stages() + stage.index()};
}
inline StageId stage_of_pass(const StepShape& shape, PassId pass) {
  return StageId{pass.index() % shape.num_stages()};
}
inline Phase phase_of_pass(const StepShape& shape, PassId pass) {
  return static_cast<Phase>(pass.index() / shape.num_stages());
}

// By pass: those that it waits for, ascending. A backward waits for its forward, and for the
// backward of each stage that waits for its stage; gradients of weights wait for the backward.
std::vector<std::vector<PassId>> pass_waits(const StepShape& shape);

// A task of one step, by its number in TaskTable.
using TaskId = Id<struct TaskTag>;

// The tasks of one step, numbered, and what each of them waits for: the one place that knows what
// phases depend on.
//
//   const TaskTable tasks(shape, 4);
//   std::vector<Nanoseconds> ended(tasks.size());
//   tasks.for_each_wait(id, [&](TaskId before) { start = std::max(start, ended[before.index()]);
//   });
class TaskTable {
 public:
  TaskTable(StepShape shape, int n_microbatches);

  const StepShape& shape() const { return shape_; }
  // Numbers run to here; stages without a backward leave theirs unused.
  std::size_t size() const { return waits_.size() * n_microbatches_; }
  std::size_t num_tasks() const { return num_passes_ * n_microbatches_; }
  std::size_t num_stages() const { return shape_.num_stages(); }
  int n_microbatches() const { return static_cast<int>(n_microbatches_); }

  // A task that the step has.
  TaskId id(const Task& task) const { return id(pass(task), task.microbatch); }
  TaskId id(PassId pass, int microbatch) const {
    return TaskId{pass.index() * n_microbatches_ + static_cast<std::size_t>(microbatch)};
  }
  PassId pass(const Task& task) const { return pass_of(shape_, task.stage, task.phase); }

  // Visits the tasks that must have ended before this one starts, wherever they run. What the
  // schedule has its device do before comes on top of that.
  template <class Visit>
  void for_each_wait(TaskId id, Visit&& visit) const {
    const std::size_t microbatch = id.index() % n_microbatches_;
    for (const PassId before : waits_[id.index() / n_microbatches_]) {
      visit(TaskId{before.index() * n_microbatches_ + microbatch});
    }
  }

 private:
  StepShape shape_;
  std::vector<std::vector<PassId>> waits_;  // by pass
  std::size_t num_passes_ = 0;              // that there are
  std::size_t n_microbatches_;
};

}  // namespace kerf
