// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// When a search ends. Its budget is in seconds and its time is counted, not measured: searches say
// how many steps they took (count_steps), a step is ten nanoseconds, and a budget is over when that
// many were counted. So the same search ends at the same step on a busy machine, and finds the
// same. The real clock is a stop of last resort, some times later (kPatience), for machines far
// slower than the count assumes and for work that nobody counts; whoever it stops finds something
// else on another run, and the scope remembers that (timed_out).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace kerf {

using Deadline = std::chrono::steady_clock::time_point;

class DeadlineScope;

// Of a thread, or of a task that may run on any: what it counted, and when it has to end.
struct CountedTime {
  double counted = 0;  // seconds
  double end = std::numeric_limits<double>::infinity();
  Deadline deadline = Deadline::max();  // the real clock's
  DeadlineScope* scope = nullptr;
};

// While it lives, no clock that is made on this thread strikes later than in so many seconds: what
// a planner calls keeps to the planner's time, however often it is called and whatever share it
// takes for itself. Nested scopes: the earliest.
class DeadlineScope {
 public:
  explicit DeadlineScope(double seconds);
  ~DeadlineScope();
  DeadlineScope(const DeadlineScope&) = delete;
  DeadlineScope& operator=(const DeadlineScope&) = delete;

  // The real clock has ended something under it, on any thread.
  bool timed_out() const { return timed_out_.load(std::memory_order_relaxed); }

 private:
  friend bool clock_passed(Deadline deadline);
  CountedTime before_;
  std::atomic<bool> timed_out_ = false;
};

// For a task that works for another thread, from that thread's time on: it counts the same
// whichever thread runs it, and what it counted is the caller's to add (count_seconds).
class TaskTime {
 public:
  explicit TaskTime(const CountedTime& of_caller);
  ~TaskTime();
  TaskTime(const TaskTime&) = delete;
  TaskTime& operator=(const TaskTime&) = delete;

  double counted() const;  // by the task so far

 private:
  CountedTime before_;
  double start_;
};

const CountedTime& current_time();

// About ten nanoseconds of one core each: a few dozen instructions, or one miss of the cache.
void count_steps(std::int64_t steps);
void count_seconds(double seconds);

// The scope's time is over. Asks whether the caller still wants the answer, too
// (base/interrupt.h), and then may throw.
bool deadline_passed();
// Last resort for a budget of so many seconds: the scope's, or kPatience times as many from now.
Deadline last_resort(double seconds);
inline constexpr double kPatience = 6;
inline constexpr double kLeastPatience = 3;  // seconds; what is short is soon late
// Whether that moment is over; if so, the scopes know. Polls nothing: who asks it has.
bool clock_passed(Deadline deadline);

// The stop of a search, shared by its threads.
class StopClock {
 public:
  explicit StopClock(double seconds);
  // Its time is over. Polls as deadline_passed does.
  bool struck() const;
  // It has said so before. For answers: what ended by itself was not cut short.
  bool has_struck() const { return struck_.load(std::memory_order_relaxed); }
  // Seconds until it strikes, and a little when it has: what is started then can still answer.
  double left() const;

 private:
  double end_;
  Deadline last_;
  mutable std::atomic<bool> late_ = false;    // by the real clock: late for all threads
  mutable std::atomic<bool> struck_ = false;  // for any reason
};

}  // namespace kerf
