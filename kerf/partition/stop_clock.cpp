// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/stop_clock.h"

#include <algorithm>

namespace kerf::partition {

StopClock::StopClock(double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr double kForever = 1e8;  // seconds; more would overflow the clock's count
  end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::clamp(seconds, 0.0, kForever)));
}

bool StopClock::struck() const {
  if (struck_.load(std::memory_order_relaxed)) return true;
  if (std::chrono::steady_clock::now() < end_) return false;
  struck_.store(true, std::memory_order_relaxed);
  return true;
}

double StopClock::left() const {
  constexpr double kLittle = 0.005;
  const std::chrono::duration<double> seconds = end_ - std::chrono::steady_clock::now();
  return std::max(kLittle, seconds.count());
}

}  // namespace kerf::partition
