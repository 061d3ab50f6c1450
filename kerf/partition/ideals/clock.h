// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>

namespace kerf::partition::ideals {

// The safety stop of a search. Once late, always late.
class Clock {
 public:
  explicit Clock(double time_budget) : time_budget_(time_budget) {}
  bool is_late() {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start_;
    late_ = late_ || spent.count() > time_budget_;
    return late_;
  }
  // The same, asked often: looks every so many steps.
  bool is_late_after(std::size_t steps) {
    steps_ += steps;
    if (steps_ < kStepsToLook) return late_;
    steps_ = 0;
    return is_late();
  }

 private:
  static constexpr std::size_t kStepsToLook = 50'000;
  double time_budget_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::size_t steps_ = 0;
  bool late_ = false;
};

}  // namespace kerf::partition::ideals
