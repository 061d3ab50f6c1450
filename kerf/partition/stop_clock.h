// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>

namespace kerf::partition {

// The safety stop of a search, shared by its threads. Once it has struck it stays struck.
class StopClock {
 public:
  explicit StopClock(double seconds);
  bool struck() const;
  // Seconds until it strikes, and a little when it has: what is started then can still answer.
  double left() const;

 private:
  std::chrono::steady_clock::time_point end_;
  mutable std::atomic<bool> struck_ = false;
};

}  // namespace kerf::partition
