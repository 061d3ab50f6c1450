// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The search that follows the dynamic program when its figures were bounds. Private to
// partition/chain/.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kerf/partition/chain/chain_table.h"
#include "kerf/plan/infeasible.h"

namespace kerf::partition {

struct ChainSearchResult {
  std::optional<std::vector<std::size_t>> cuts;  // as ChainTable::cuts; none: nothing fits
  std::optional<Infeasible> closest;             // of the splits tried: the least short of memory
  bool truncated = false;
};

// Walks splits from the front, where a stage's load is known once the stages before it are placed;
// the table (solved for Measure::busiest) bounds what is still to come.
ChainSearchResult search_chain(const Problem& problem, const Intervals& intervals,
                               const ChainModel& model, const ChainTable& table,
                               const std::vector<bool>& cuttable, std::int64_t work_limit);

}  // namespace kerf::partition
