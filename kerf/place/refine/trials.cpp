// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/refine/trials.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "kerf/base/interrupt.h"
#include "kerf/base/stop_clock.h"

namespace kerf::place {

namespace {

// Asks meanwhile whether the caller still wants the answer: only the caller's own thread can. What
// that throws comes back, to be thrown on when the helpers, which see it, have ended.
std::exception_ptr wait_for(const std::atomic<std::size_t>& helping) {
  try {
    while (helping.load() > 0) {
      poll_interrupt();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

std::size_t run_trials(std::size_t count, int threads,
                       const std::function<bool(std::size_t)>& trial) {
  std::atomic<std::size_t> next = 0;
  std::atomic<std::size_t> last = count;  // trials from here on do not count
  std::vector<std::exception_ptr> errors(count);
  std::vector<double> counted(count);  // seconds, by trial
  const auto stop_after = [&](std::size_t i) {
    std::size_t seen = last.load();
    while (i + 1 < seen && !last.compare_exchange_weak(seen, i + 1)) {
    }
  };
  std::atomic<std::size_t> helping = 0;
  const CountedTime of_caller = current_time();
  const PollPtr poll = current_poll();
  const auto work = [&] {
    for (std::size_t i = next++; i < last.load(); i = next++) {
      try {
        const TaskTime its_time(of_caller);
        if (trial(i)) stop_after(i);
        counted[i] = its_time.counted();
      } catch (...) {
        errors[i] = std::current_exception();
        stop_after(i);
      }
    }
  };
  const std::size_t helpers =
      std::min<std::size_t>(count, static_cast<std::size_t>(std::max(threads, 1)));
  const auto help = [&] {
    const PollScope its_poll(poll);
    work();
    --helping;
  };
  std::vector<std::jthread> pool;
  for (std::size_t t = 1; t < helpers; ++t) {
    ++helping;
    pool.emplace_back(help);
  }
  work();
  const std::exception_ptr interrupted = wait_for(helping);
  pool.clear();
  if (interrupted) std::rethrow_exception(interrupted);
  for (std::size_t i = 0; i < last.load(); ++i) {
    if (errors[i]) std::rethrow_exception(errors[i]);
    count_seconds(counted[i]);
  }
  return last.load();
}

}  // namespace kerf::place
