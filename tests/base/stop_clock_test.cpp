// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/stop_clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace kerf {
namespace {

constexpr std::int64_t kStepsASecond = 100'000'000;

TEST(StopClock, StrikesByTheCountAndNotByTheTime) {
  const DeadlineScope scope(10);
  const StopClock clock(0.01);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(clock.struck());
  count_steps(kStepsASecond / 200);
  EXPECT_FALSE(clock.struck());
  EXPECT_FALSE(clock.has_struck());
  EXPECT_NEAR(clock.left(), 0.005, 1e-9);
  count_steps(kStepsASecond / 200);
  EXPECT_TRUE(clock.struck());
  EXPECT_TRUE(clock.has_struck());
  EXPECT_FALSE(scope.timed_out());
}

TEST(StopClock, KeepsToItsScopes) {
  const DeadlineScope outer(1);
  {
    const DeadlineScope inner(0.5);
    const StopClock clock(2);
    count_seconds(0.5);
    EXPECT_TRUE(clock.struck());
    EXPECT_TRUE(deadline_passed());
  }
  EXPECT_FALSE(deadline_passed());
  const StopClock clock(2);
  count_seconds(0.5);
  EXPECT_TRUE(clock.struck());
  EXPECT_TRUE(deadline_passed());
}

TEST(StopClock, TheRealClockIsTheLastResortAndIsRemembered) {
  const DeadlineScope outer(100);
  bool inner_timed_out = false;
  {
    const DeadlineScope inner(100);
    EXPECT_FALSE(clock_passed(std::chrono::steady_clock::now() + std::chrono::hours(1)));
    EXPECT_FALSE(inner.timed_out());
    EXPECT_TRUE(clock_passed(std::chrono::steady_clock::now()));
    inner_timed_out = inner.timed_out();
  }
  EXPECT_TRUE(inner_timed_out);
  EXPECT_TRUE(outer.timed_out());
  const auto patience = last_resort(1) - std::chrono::steady_clock::now();
  EXPECT_GT(std::chrono::duration<double>(patience).count(), 1 + kLeastPatience - 0.5);
}

TEST(StopClock, ATaskCountsForItself) {
  const DeadlineScope scope(1);
  const StopClock clock(0.5);
  count_seconds(0.2);
  const CountedTime of_caller = current_time();
  double counted = 0;
  std::thread other([&] {
    const TaskTime time(of_caller);
    EXPECT_FALSE(clock.struck());
    count_seconds(0.4);
    EXPECT_TRUE(clock.struck());
    counted = time.counted();
    clock_passed(std::chrono::steady_clock::now());
  });
  other.join();
  EXPECT_NEAR(counted, 0.4, 1e-12);
  EXPECT_FALSE(clock.struck()) << "what another task counted";
  EXPECT_TRUE(scope.timed_out()) << "what another task was stopped by";
  count_seconds(counted);
  EXPECT_TRUE(clock.struck());
}

}  // namespace
}  // namespace kerf
