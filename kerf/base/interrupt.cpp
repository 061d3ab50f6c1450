// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/interrupt.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace kerf {

using Clock = std::chrono::steady_clock;

class Poll {
 public:
  explicit Poll(std::function<void()> function) : function_(std::move(function)) {}

  void look(bool now_at_once = false) {
    if (std::this_thread::get_id() != owner_) {
      if (ended_.load(std::memory_order_relaxed)) throw Interrupted();
      return;
    }
    const Clock::time_point now = Clock::now();
    if (now < next_ && !now_at_once) return;
    try {
      function_();
    } catch (...) {
      ended_.store(true, std::memory_order_relaxed);
      throw;
    }
    next_ = Clock::now() + kInterval;  // what the poll itself took does not count
  }

 private:
  static constexpr auto kInterval =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(kPollSeconds));

  std::function<void()> function_;
  std::thread::id owner_ = std::this_thread::get_id();
  Clock::time_point next_ = Clock::now() + kInterval;  // read and written by the owner alone
  std::atomic<bool> ended_{false};
};

namespace {
thread_local PollPtr installed;
}  // namespace

PollScope::PollScope(std::function<void()> poll)
    : PollScope(poll ? std::make_shared<Poll>(std::move(poll)) : nullptr) {}

PollScope::PollScope(PollPtr of_caller) : before_(std::move(installed)) {
  installed = std::move(of_caller);
}

PollScope::~PollScope() { installed = std::move(before_); }

PollPtr current_poll() { return installed; }

void poll_interrupt() {
  if (installed) installed->look();
}

void poll_interrupt_now() {
  if (installed) installed->look(/*now_at_once=*/true);
}

}  // namespace kerf
