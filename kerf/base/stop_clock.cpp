// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/stop_clock.h"

#include <algorithm>

#include "kerf/base/interrupt.h"

namespace kerf {
namespace {

using Clock = std::chrono::steady_clock;

thread_local Deadline deadline = Deadline::max();

}  // namespace

DeadlineScope::DeadlineScope(double seconds) : DeadlineScope(deadline_in(seconds)) {}

DeadlineScope::DeadlineScope(Deadline of_caller) : before_(deadline) {
  deadline = std::min(deadline, of_caller);
}

DeadlineScope::~DeadlineScope() { deadline = before_; }

Deadline current_deadline() { return deadline; }

bool deadline_passed() {
  poll_interrupt();
  return deadline != Deadline::max() && Clock::now() >= deadline;
}

Deadline deadline_in(double seconds) {
  constexpr double kForever = 1e8;  // seconds; more would overflow the clock's count
  const std::chrono::duration<double> length(std::clamp(seconds, 0.0, kForever));
  return std::min(deadline, Clock::now() + std::chrono::duration_cast<Clock::duration>(length));
}

StopClock::StopClock(double seconds) : end_(deadline_in(seconds)) {}

bool StopClock::struck() const {
  poll_interrupt();
  if (struck_.load(std::memory_order_relaxed)) return true;
  if (Clock::now() < end_) return false;
  struck_.store(true, std::memory_order_relaxed);
  return true;
}

double StopClock::left() const {
  constexpr double kLittle = 0.005;
  const std::chrono::duration<double> seconds = end_ - Clock::now();
  return std::max(kLittle, seconds.count());
}

}  // namespace kerf
