// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/schedule/task.h"

#include <algorithm>
#include <utility>

namespace kerf {

std::string_view to_string(Phase phase) { return phase == Phase::forward ? "forward" : "backward"; }

TaskTable::TaskTable(std::vector<std::vector<StageId>> after, int n_microbatches)
    : after_(std::move(after)),
      n_microbatches_(static_cast<std::size_t>(std::max(n_microbatches, 0))) {}

}  // namespace kerf
