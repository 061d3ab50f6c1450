// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Placement without communication: whole items into equal bins and one slower bin of its own.
#pragma once

#include <cstdint>
#include <vector>

namespace kerf::partition {

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
// largest first, states met before skipped; `budget` counts placements tried and is reduced by what
// was used. Exact unless `unknown`.
PackResult pack_below(std::vector<PackItem> items, int bins, double limit, std::int64_t& budget);

// Least limit of a split of the items' time without loss: a linear program over one ratio.
// Items are taken as divisible. Infinite when an item has no bin.
double divisible_limit(std::vector<PackItem> items, int bins);

}  // namespace kerf::partition
