// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/refine/tasks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace kerf::partition {

std::size_t run_tasks(std::size_t count, int threads,
                      const std::function<bool(std::size_t)>& task) {
  std::atomic<std::size_t> next = 0;
  std::atomic<std::size_t> last = count;  // tasks from here on do not count
  std::vector<std::exception_ptr> errors(count);
  const auto stop_after = [&](std::size_t i) {
    std::size_t seen = last.load();
    while (i + 1 < seen && !last.compare_exchange_weak(seen, i + 1)) {
    }
  };
  const auto work = [&] {
    for (std::size_t i = next++; i < last.load(); i = next++) {
      try {
        if (task(i)) stop_after(i);
      } catch (...) {
        errors[i] = std::current_exception();
        stop_after(i);
      }
    }
  };
  const std::size_t helpers =
      std::min<std::size_t>(count, static_cast<std::size_t>(std::max(threads, 1)));
  std::vector<std::jthread> pool;
  for (std::size_t t = 1; t < helpers; ++t) pool.emplace_back(work);
  work();
  pool.clear();
  for (std::size_t i = 0; i < last.load(); ++i) {
    if (errors[i]) std::rethrow_exception(errors[i]);
  }
  return last.load();
}

}  // namespace kerf::partition
