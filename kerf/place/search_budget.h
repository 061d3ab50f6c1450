// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kerf/base/interrupt.h"
#include "kerf/base/stop_clock.h"

namespace kerf::place {

// Counted work decides when a search ends; the clock is a safety stop, and it is remembered.
struct SearchBudget {
  std::int64_t work = 0;
  Deadline last;
  bool timed_out = false;

  static SearchBudget of(std::int64_t work, double seconds) { return {work, last_resort(seconds)}; }
  // Work for so many seconds, with room below the clock: some 1e8 steps of a flow take one.
  static SearchBudget of(double seconds) {
    return of(static_cast<std::int64_t>((seconds < 1e6 ? seconds : 1e6) * 5e7), seconds);
  }

  // Asks whether the caller still wants the answer, too (base/interrupt.h), and then may throw.
  bool spent(std::int64_t steps) {
    poll_interrupt();
    if (steps >= work) return true;
    timed_out = timed_out || clock_passed(last);
    return timed_out;
  }
};

}  // namespace kerf::place
