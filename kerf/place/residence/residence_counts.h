// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kerf/place/residence/relaxed.h"

namespace kerf {

// How many units of each group are resident and how many are computed on the host; the others are
// streamed.
struct ResidenceCounts {
  struct OfGroup {
    std::size_t resident = 0;
    std::size_t host = 0;
  };
  std::vector<OfGroup> of;
  double link = 0;       // busy time per call
  double computing = 0;  // per call, on the device and on the host
  bool proved = false;   // no other counts have a smaller max(link, computing)

  double value() const { return link > computing ? link : computing; }
};

// The counts with the smallest max(link, computing) whose residents fit in `memory` bytes: exact,
// unless `looks` at groups, which are counted down, run out. Where more residents save no time
// there are as many as fit. `of` is empty if none fit. `relaxed`: the tightest for these groups and
// this memory.
ResidenceCounts count_residences(const std::vector<UnitGroup>& groups, double memory,
                                 const RelaxedResidence& relaxed, std::size_t& looks);

}  // namespace kerf
