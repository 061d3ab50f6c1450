// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/own_thread.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <future>

#include "kerf/base/interrupt.h"

namespace kerf {

void run_on_own_thread(const std::function<void()>& work) {
  std::atomic<bool> stopped{false};
  auto done = std::async(std::launch::async, [&] {
    const PollScope scope([&] {
      if (stopped) throw Interrupted();
    });
    work();
  });
  std::exception_ptr interrupt;
  while (done.wait_for(std::chrono::duration<double>(kPollSeconds)) != std::future_status::ready) {
    try {
      poll_interrupt();
    } catch (...) {
      interrupt = std::current_exception();
      stopped = true;
    }
  }
  if (interrupt) std::rethrow_exception(interrupt);
  done.get();
}

}  // namespace kerf
