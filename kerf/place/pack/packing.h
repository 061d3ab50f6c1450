// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Placement without communication: whole items into equal bins and one slower bin of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/search_budget.h"

namespace kerf::place {

struct PackItem {
  double time = 0;      // in an equal bin; infinite: not there
  double cpu_time = 0;  // in the slower bin; infinite: not there
};

enum class PackAnswer { fits, refuted, unknown };
struct PackResult {
  PackAnswer answer = PackAnswer::unknown;
  double load = 0;  // of the fullest bin, when it fits
};

// Can the items be packed so that every bin stays below `limit`? Depth-first over the items, the
// largest first, states met before skipped; `placements` counts those tried and is reduced by what
// was used, and the clock of `budget` stops it too. Exact unless `unknown`. Recursion is as deep as
// there are items.
PackResult pack_below(std::vector<PackItem> items, int bins, double limit, std::int64_t& placements,
                      SearchBudget& budget);

// Least limit of a split of the items' time without loss: a linear program over one ratio. `bins`
// counts the equal bins, one twice as fast as two. Items are taken as divisible. Infinite when an
// item has no bin.
double divisible_limit(std::vector<PackItem> items, double bins);

}  // namespace kerf::place
