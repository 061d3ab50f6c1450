// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/base/units.h"
#include "kerf/place/residence/host_share.h"

namespace kerf {

// How long products with weights take per byte of weights, by the rows of the other operand.
struct WeightSpeed {
  std::int64_t rows = 1;
  double device = 0;  // nanoseconds per byte
  double host = 0;
};

// What a unit does in a call.
struct UnitWork {
  Bytes bytes;  // of its weights
  bool may_be_host = false;
  bool is_table = false;  // a row of input takes one row of the weights: an embedding
  Bytes row;              // that its arguments and results take together, for each row
};

// What waiting for the device costs a unit that the host computes: arguments down, results up.
inline constexpr Nanoseconds kHostWait{50'000};

// Times of units for each number of rows. `bytes_per_nanosecond`: of the link that arguments and
// results go over; `each`: what coming and going costs a unit by itself.
std::vector<RowTimes> row_times(std::span<const UnitWork> units,
                                std::span<const WeightSpeed> speeds, double bytes_per_nanosecond,
                                Nanoseconds each);

}  // namespace kerf
