// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The search that follows the dynamic program when its figures were bounds. Private to
// partition/chain/.
#pragma once

#include <cstdint>
#include <optional>

#include "kerf/partition/chain/chain_table.h"

namespace kerf::partition {

struct ChainSearchResult {
  std::optional<Arrangement> arrangement;  // none: nothing below `best` was met
  std::optional<Infeasible> closest;       // of those tried: the least short of memory
  bool truncated = false;
};

// Walks arrangements from the front, where a stage's load is known once the stages before it are
// placed; the table (solved for Measure::busiest) bounds what is still to come. Of devices that can
// change places only the first is tried. Looks for a busiest device below `best`.
ChainSearchResult search_chain(const ChainInput& input, const Lineup& lineup,
                               const ChainTable& table, double best, std::int64_t work_limit);

}  // namespace kerf::partition
