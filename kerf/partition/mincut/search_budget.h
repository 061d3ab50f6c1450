// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace kerf::partition {

// Counted work decides when a search ends; the clock is a safety stop, and it is remembered.
struct SearchBudget {
  using Clock = std::chrono::steady_clock;
  std::int64_t work = 0;
  Clock::time_point end;
  bool timed_out = false;

  bool spent(std::int64_t steps) {
    if (steps >= work) return true;
    timed_out = timed_out || Clock::now() >= end;
    return timed_out;
  }
};

}  // namespace kerf::partition
