// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Work that takes long asks now and then whether its caller still wants the answer.
//
//   void search() {
//     while (...) { poll_interrupt(); ... }   // throws what the caller's poll throws
//   }
//   const PollScope scope([] { if (signal_came()) throw Interrupted(); });
//   search();
#pragma once

#include <exception>
#include <functional>
#include <memory>

namespace kerf {

// The caller no longer wants the answer. No kerf::Error: nothing went wrong, and whoever handles
// errors of a method or a file must let this one pass.
class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override {
    return "[base.interrupt] the work was interrupted by its caller";
  }
};

// How often a poll is called at most.
inline constexpr double kPollSeconds = 0.02;

class Poll;
using PollPtr = std::shared_ptr<Poll>;

// While it lives, poll_interrupt() of this thread calls `poll` every kPollSeconds at most; nested
// scopes: the innermost. `poll` ends the work by throwing; an empty one is never called.
class PollScope {
 public:
  explicit PollScope(std::function<void()> poll);
  // For a thread that works for another: it ends, by Interrupted, once the other's poll has thrown.
  // Null: nobody asks.
  explicit PollScope(PollPtr of_caller);
  ~PollScope();
  PollScope(const PollScope&) = delete;
  PollScope& operator=(const PollScope&) = delete;

 private:
  PollPtr before_;
};

// What is installed on this thread, to be handed to threads that work for it; null: nothing.
PollPtr current_poll();

// Costs a look at the clock, and nothing where no scope is. May throw anything.
void poll_interrupt();
// The same without regard to when it was last called: before something that cannot be taken back.
void poll_interrupt_now();

}  // namespace kerf
