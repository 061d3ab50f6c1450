// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/interrupt.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>

namespace kerf {
namespace {

using Clock = std::chrono::steady_clock;

// Polls for `seconds`, or until something is thrown.
int poll_for(double seconds) {
  int polls = 0;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (; Clock::now() < end; ++polls) poll_interrupt();
  return polls;
}

TEST(AnInterrupt, IsNeverAskedForWhereNobodyListens) {
  EXPECT_EQ(current_poll(), nullptr);
  EXPECT_NO_THROW(poll_interrupt());
}

TEST(AnInterrupt, IsAskedForNowAndThenOnly) {
  int calls = 0;
  const PollScope scope([&] { ++calls; });
  poll_interrupt();
  EXPECT_EQ(calls, 0);  // short work asks nobody
  const int polls = poll_for(5 * kPollSeconds);
  EXPECT_GE(calls, 1);
  EXPECT_LE(calls, 5);
  EXPECT_GT(polls, calls);
}

TEST(AnInterrupt, EndsTheWorkWithWhatThePollThrows) {
  const PollScope scope([] { throw std::out_of_range("custom"); });
  EXPECT_THROW(poll_for(10), std::out_of_range);
}

TEST(AnInterrupt, BelongsToTheInnermostScope) {
  const PollScope outer([] { throw std::out_of_range("outer"); });
  {
    const PollScope inner([] { throw std::domain_error("inner"); });
    EXPECT_THROW(poll_for(10), std::domain_error);
  }
  EXPECT_THROW(poll_for(10), std::out_of_range);
}

TEST(AnInterrupt, ReachesThreadsThatWorkForTheCaller) {
  const PollScope scope([] { throw std::out_of_range("custom"); });
  bool interrupted = false;
  std::thread helper([&, poll = current_poll()] {
    const PollScope inherited(poll);
    try {
      poll_for(10);
    } catch (const Interrupted&) {
      interrupted = true;
    }
  });
  EXPECT_THROW(poll_for(10), std::out_of_range);
  helper.join();
  EXPECT_TRUE(interrupted);
}

}  // namespace
}  // namespace kerf
