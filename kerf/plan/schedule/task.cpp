// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/schedule/task.h"

#include <algorithm>
#include <utility>

namespace kerf {

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::backward: return "backward";
    case Phase::weight_gradient: return "weight_gradient";
  }
  return "unknown";
}

char letter(Phase phase) {
  return phase == Phase::forward ? 'F' : phase == Phase::backward ? 'B' : 'W';
}

std::vector<std::vector<PassId>> pass_waits(const StepShape& shape) {
  std::vector<std::vector<PassId>> waits(shape.num_stages() * shape.num_phases());
  const auto add = [&](StageId stage, Phase phase, StageId before, Phase before_phase) {
    if (!shape.has(stage, phase) || !shape.has(before, before_phase)) return;
    waits[pass_of(shape, stage, phase).index()].push_back(pass_of(shape, before, before_phase));
  };
  for (std::size_t s = 0; s < shape.num_stages(); ++s) {
    const StageId stage{s};
    for (const StageId before : shape.after[s]) {
      add(stage, Phase::forward, before, Phase::forward);
      add(before, Phase::backward, stage, Phase::backward);
    }
    add(stage, Phase::backward, stage, Phase::forward);
    add(stage, Phase::weight_gradient, stage, Phase::backward);
  }
  for (std::vector<PassId>& row : waits) std::sort(row.begin(), row.end());
  return waits;
}

TaskTable::TaskTable(StepShape shape, int n_microbatches)
    : shape_(std::move(shape)),
      waits_(pass_waits(shape_)),
      n_microbatches_(static_cast<std::size_t>(std::max(n_microbatches, 0))) {
  for (std::size_t s = 0; s < shape_.num_stages(); ++s) {
    for (const Phase phase : kPhases) num_passes_ += shape_.has(StageId{s}, phase) ? 1 : 0;
  }
}

}  // namespace kerf
