// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/instance.h"

namespace kerf::place {

// Splits to start an any-split search from: METIS over units, each tensor an edge from its maker to
// every reader, three imbalances; nothing on the CPU, and units that cannot be elsewhere go there.
// None without METIS, for one accelerator, or for no more units than accelerators.
std::vector<Split> metis_starts(const Instance& problem, std::uint64_t seed);

}  // namespace kerf::place
