// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the dynamic programs minimise. Private to partition/chain/.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kerf/partition/chain/device_model.h"

namespace kerf::partition {

enum class Measure : std::uint8_t {
  busiest,   // the largest load
  sum,       // the sum of loads, none above the cap
  overflow,  // the largest number of bytes over a limit; 0 when everything fits
};

// Of one interval on one device; kInfinity: it does not fit.
inline double measure_of(const DeviceModel& device, const IntervalFigures& figures,
                         std::int64_t n_microbatches, Measure measure) {
  const std::int64_t memory = device.memory(figures, n_microbatches);
  if (measure == Measure::overflow) {
    if (device.limit == kNoLimit) return 0;
    return std::max(0.0, static_cast<double>(memory - device.limit));
  }
  return memory > device.limit ? kInfinity : device.load(figures);
}

// Of an interval and what follows it.
inline double join(double first, double rest, Measure measure) {
  return measure == Measure::sum ? first + rest : std::max(first, rest);
}

// Sums in another order differ in the last digits; a bound must not rule out its own solution.
inline constexpr double kSlack = 1 + 1e-9;

}  // namespace kerf::partition
