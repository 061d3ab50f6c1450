// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/libtorch/neighbours.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace kerf {
namespace {

void wait_until_more(const std::atomic<int>& steps, int than) {
  while (steps <= than) std::this_thread::yield();
}

TEST(ANeighbour, WorksWhileItShallAndRestsOtherwise) {
  std::atomic<int> steps{0};
  const Neighbours::Work work = [&](Neighbours::Gate& gate) {
    while (gate.next_pass()) {
      for (std::size_t i = 0; i < 3; ++i) {
        gate.step(i);
        ++steps;
      }
    }
  };
  Neighbours neighbours({work, work});
  EXPECT_EQ(steps, 0);
  for (int round = 0; round < 50; ++round) {
    const int before = steps;
    {
      const Neighbours::AtWork at_work(neighbours);
      wait_until_more(steps, before);
    }
    const int after = steps;
    std::this_thread::yield();
    EXPECT_EQ(steps, after);
  }
  neighbours.check();
}

TEST(ANeighbour, ThatFailsIsReportedAndLeavesNobodyWaiting) {
  std::atomic<int> begun{0};
  const Neighbours::Work fails = [&](Neighbours::Gate& gate) {
    if (!gate.next_pass()) return;
    ++begun;
    throw std::runtime_error("out of memory");
  };
  Neighbours neighbours({fails});
  neighbours.check();
  {
    const Neighbours::AtWork at_work(neighbours);
    wait_until_more(begun, 0);
  }
  EXPECT_THROW(neighbours.check(), std::runtime_error);
}

TEST(ANeighbour, MayFailBeforeItHasPrepared) {
  Neighbours neighbours({[](Neighbours::Gate&) { throw std::runtime_error("no such device"); }});
  EXPECT_THROW(neighbours.check(), std::runtime_error);
}

TEST(Neighbours, MayBeNone) {
  Neighbours none({});
  EXPECT_TRUE(none.empty());
  const Neighbours::AtWork at_work(none);
  none.check();
}

}  // namespace
}  // namespace kerf
