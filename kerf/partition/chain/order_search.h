// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The search over orders of devices and splits that follows the dynamic program over classes when
// its figures were bounds. Private to partition/chain/.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kerf/partition/chain/class_table.h"
#include "kerf/plan/infeasible.h"

namespace kerf::partition {

struct OrderSearchResult {
  std::optional<Arrangement> arrangement;  // none: nothing below `best` was met
  std::optional<Infeasible> closest;       // of those tried: the least short of memory
  bool truncated = false;
};

// Walks arrangements from the front, where a stage's load is known once the stages before it are
// placed; the table (solved for Measure::busiest) bounds what is still to come. Of devices that can
// change places only the first is tried. Looks for a busiest device below `best`.
OrderSearchResult search_orders(const Problem& problem, const Intervals& intervals,
                                const ChainModel& model, const std::vector<DeviceClass>& classes,
                                const ClassTable& table, const std::vector<bool>& cuttable,
                                double best, std::int64_t work_limit);

}  // namespace kerf::partition
