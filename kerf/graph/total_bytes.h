// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kerf/graph/node.h"

namespace kerf {

// Sums of sizes are 64-bit numbers. No sum that anybody makes of a graph's parts passes this one,
// so whoever keeps it below 2^62 keeps them all from wrapping.
inline constexpr double kMostTotalBytes = 1152921504606846976.0;  // 2^60

// All storages and all values at a batch size: as a floating number, which never wraps. Values
// count by themselves: one that is expanded has more elements than its storage holds.
double total_bytes(std::span<const Storage> storages, std::span<const Value> values,
                   std::int64_t batch);

}  // namespace kerf
