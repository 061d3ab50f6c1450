// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/stop_clock.h"

#include <algorithm>

#include "kerf/base/interrupt.h"

namespace kerf {
namespace {

using Clock = std::chrono::steady_clock;

thread_local CountedTime time_here;

double end_in(double seconds) {
  return std::min(time_here.end, time_here.counted + std::max(seconds, 0.0));
}

}  // namespace

DeadlineScope::DeadlineScope(double seconds) : before_(time_here) {
  time_here.end = end_in(seconds);
  time_here.deadline = last_resort(seconds);
  time_here.scope = this;
}

DeadlineScope::~DeadlineScope() {
  const double counted = time_here.counted;
  time_here = before_;
  time_here.counted = counted;
}

TaskTime::TaskTime(const CountedTime& of_caller) : before_(time_here), start_(of_caller.counted) {
  time_here = of_caller;
}

TaskTime::~TaskTime() { time_here = before_; }

double TaskTime::counted() const { return time_here.counted - start_; }

const CountedTime& current_time() { return time_here; }

void count_steps(std::int64_t steps) {
  constexpr double kStep = 1e-8;  // seconds
  time_here.counted += static_cast<double>(steps) * kStep;
}

void count_seconds(double seconds) { time_here.counted += seconds; }

bool deadline_passed() {
  poll_interrupt();
  return time_here.counted >= time_here.end || clock_passed(time_here.deadline);
}

Deadline last_resort(double seconds) {
  constexpr double kForever = 1e8;  // seconds; more would overflow the clock's count
  const double most = std::max(seconds * kPatience, seconds + kLeastPatience);
  const std::chrono::duration<double> length(std::clamp(most, 0.0, kForever));
  return std::min(time_here.deadline,
                  Clock::now() + std::chrono::duration_cast<Clock::duration>(length));
}

bool clock_passed(Deadline deadline) {
  if (deadline == Deadline::max() || Clock::now() < deadline) return false;
  for (DeadlineScope* scope = time_here.scope; scope != nullptr; scope = scope->before_.scope) {
    scope->timed_out_.store(true, std::memory_order_relaxed);
  }
  return true;
}

StopClock::StopClock(double seconds) : end_(end_in(seconds)), last_(last_resort(seconds)) {}

bool StopClock::struck() const {
  poll_interrupt();
  // Counted, each thread for itself: a task must not end where another did.
  const bool counted_out = time_here.counted >= end_;
  if (!counted_out && !late_.load(std::memory_order_relaxed)) {
    if (!clock_passed(last_)) return false;
    late_.store(true, std::memory_order_relaxed);
  }
  struck_.store(true, std::memory_order_relaxed);
  return true;
}

double StopClock::left() const {
  constexpr double kLittle = 0.005;
  return std::max(kLittle, end_ - time_here.counted);
}

}  // namespace kerf
