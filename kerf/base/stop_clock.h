// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>

namespace kerf {

using Deadline = std::chrono::steady_clock::time_point;

// While it lives, no clock that is made on this thread strikes later than in so many seconds: what
// a planner calls keeps to the planner's time, however often it is called and whatever share it
// takes for itself. Nested scopes: the earliest.
class DeadlineScope {
 public:
  explicit DeadlineScope(double seconds);
  // For a thread that works for another.
  explicit DeadlineScope(Deadline of_caller);
  ~DeadlineScope();
  DeadlineScope(const DeadlineScope&) = delete;
  DeadlineScope& operator=(const DeadlineScope&) = delete;

 private:
  Deadline before_;
};

// Of the scope in force; the end of all time where none is.
Deadline current_deadline();
// Asks whether the caller still wants the answer, too (base/interrupt.h), and then may throw.
bool deadline_passed();
// In so many seconds, or at the scope's deadline.
Deadline deadline_in(double seconds);

// The safety stop of a search, shared by its threads. Once it has struck it stays struck.
class StopClock {
 public:
  explicit StopClock(double seconds);
  // Asks whether the caller still wants the answer, too (base/interrupt.h), and then may throw.
  bool struck() const;
  // Seconds until it strikes, and a little when it has: what is started then can still answer.
  double left() const;

 private:
  Deadline end_;
  mutable std::atomic<bool> struck_ = false;
};

}  // namespace kerf
