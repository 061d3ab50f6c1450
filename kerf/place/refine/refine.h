// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Any-split search: units go to any device, contiguous or not, and the max load (find_loads)
// is to be least.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/place/load_search.h"

namespace kerf::place {

// Improves `starts` (device[unit]; those that do not fit are left out) and starts of its own.
// Memory is hard. The work is fixed by the time budget, about 0.6 of it on a machine of 2.8 GHz, so
// that the same seed gives the same answer on any number of threads; the clock stops at the
// budget and sets `truncated`. `optimal` only says that good_enough was reached. When nothing that
// fits the memory was found, `device` is empty and the objective infinite.
LoadAnswer refine(const Instance& problem, const LoadOptions& options,
                  std::span<const Split> starts);

}  // namespace kerf::place
