// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "kerf/base/stop_clock.h"

namespace kerf {

// The stop of a search on one thread, and the count of its steps. Once late, always late.
class StepClock {
 public:
  explicit StepClock(double time_budget) : clock_(time_budget) {}
  bool is_late() { return clock_.struck(); }
  // The same, asked often: looks every so many steps.
  bool is_late_after(std::size_t steps) {
    steps_ += steps;
    if (steps_ < kStepsToLook) return late_;
    count_steps(static_cast<std::int64_t>(steps_ * 3 / 2));
    steps_ = 0;
    late_ = is_late();
    return late_;
  }

 private:
  static constexpr std::size_t kStepsToLook = 50'000;
  StopClock clock_;
  std::size_t steps_ = 0;
  bool late_ = false;
};

}  // namespace kerf
