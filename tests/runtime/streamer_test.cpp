// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/runtime/stream/streamer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "kerf/base/error.h"
#include "kerf/base/rng.h"
#include "kerf/place/residence/stream_time.h"

namespace kerf {
namespace {

// Copies in virtual time: one after the other, each after the last use of its slot. Knows what is
// in each slot, and refuses what a real mover would get wrong.
class FakeMover : public Mover {
 public:
  FakeMover(std::vector<double> copy_times, std::size_t slots)
      : copy_times_(std::move(copy_times)), slots_(slots) {}

  void start(std::size_t unit, std::size_t slot) override {
    EXPECT_FALSE(slots_[slot].reading) << "slot " << slot << " is written while it is read";
    if (fail_start) throw std::runtime_error("cannot start");
    link_ = std::max(link_, slots_[slot].released) + copy_times_[unit];
    slots_[slot] = {unit, link_, slots_[slot].released, false, failing.contains(unit)};
    ++copies;
  }
  void wait(std::size_t slot) override {
    if (slots_[slot].broken) throw std::runtime_error("copy failed");
    now = std::max(now, slots_[slot].arrived);
    slots_[slot].reading = true;
  }
  void release(std::size_t slot) override {
    slots_[slot].released = now;
    slots_[slot].reading = false;
  }

  std::size_t unit_in(std::size_t slot) const { return slots_[slot].unit; }

  double now = 0;  // of whoever computes
  bool fail_start = false;
  std::set<std::size_t> failing;  // units whose copies do not arrive
  int copies = 0;

 private:
  struct Slot {
    std::size_t unit = 0;
    double arrived = 0;
    double released = 0;
    bool reading = false;
    bool broken = false;
  };
  std::vector<double> copy_times_;
  std::vector<Slot> slots_;
  double link_ = 0;
};

void use(Streamer& streamer, FakeMover& mover, std::size_t unit, double time = 1) {
  const std::size_t slot = streamer.acquire(unit);
  EXPECT_EQ(mover.unit_in(slot), unit);
  mover.now += time;
  streamer.release(unit);
}

TEST(AStreamer, HasUnitsThereInTheOrderThatItLearned) {
  FakeMover mover({10, 10, 10, 10}, 2);
  Streamer streamer(4, 2, mover);
  const std::vector<std::size_t> order = {2, 0, 3, 1};
  for (int call = 0; call < 5; ++call) {
    for (const std::size_t unit : order) use(streamer, mover, unit);
    streamer.end_call();
    if (call == 0) mover.copies = 0;
  }
  EXPECT_EQ(streamer.stats().uses, 20);
  EXPECT_LE(streamer.stats().misses, 3);  // of the first call, which came in another order
  EXPECT_EQ(mover.copies, 4 * 4);         // each unit once per call
}

TEST(AStreamer, TakesAsLongAsPlanned) {
  Rng rng(5);
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    ResidenceProblem problem;
    const std::size_t n = 3 + rng.below(8);
    std::vector<double> copies;
    for (std::size_t u = 0; u < n; ++u) {
      problem.units.push_back({{static_cast<std::int64_t>(1 + rng.below(50))},
                               {static_cast<double>(1 + rng.below(50))}});
      copies.push_back(problem.copy_time(problem.units[u].bytes).count);
    }
    const std::size_t slots = 1 + rng.below(n - 1);
    FakeMover mover(copies, slots);
    Streamer streamer(n, slots, mover);
    double middle = 0;
    for (int call = 0; call < 8; ++call) {
      if (call == 4) middle = mover.now;
      for (std::size_t u = 0; u < n; ++u)
        use(streamer, mover, u, problem.units[u].device_time.count);
      streamer.end_call();
    }
    EXPECT_EQ(streamer.stats().misses, 1);  // the very first: nobody had asked for it
    const Residences residences{std::vector<Residence>(n, Residence::streamed), slots, {50}};
    const double planned = stream_time(problem, residences).count;
    EXPECT_NEAR((mover.now - middle) / 4, planned, planned * 1e-9);
  }
}

TEST(AStreamer, CountsAndLearnsWhatComesOutOfTurn) {
  FakeMover mover(std::vector<double>(6, 1), 2);
  Streamer streamer(6, 2, mover);
  for (const std::size_t unit : {0, 1, 2, 3}) use(streamer, mover, unit);
  streamer.end_call();
  const auto before = streamer.stats().misses;
  for (const std::size_t unit : {0, 1, 5, 3}) use(streamer, mover, unit);  // another expert
  streamer.end_call();
  EXPECT_EQ(streamer.stats().misses, before + 1);
  for (const std::size_t unit : {0, 1, 5, 3}) use(streamer, mover, unit);
  EXPECT_EQ(streamer.stats().misses, before + 1);
}

TEST(AStreamer, CopiesAgainWhatHasChanged) {
  FakeMover mover(std::vector<double>(3, 1), 3);
  Streamer streamer(3, 3, mover);
  for (int call = 0; call < 3; ++call) {
    for (const std::size_t unit : {0, 1, 2}) use(streamer, mover, unit);
    streamer.end_call();
  }
  EXPECT_EQ(mover.copies, 3);  // they all fit
  streamer.invalidate(1);
  for (const std::size_t unit : {0, 1, 2}) use(streamer, mover, unit);
  EXPECT_EQ(mover.copies, 4);
}

TEST(AStreamer, CanBeUsedAgainAfterACopyThatFailed) {
  FakeMover mover(std::vector<double>(4, 1), 2);
  Streamer streamer(4, 2, mover);
  mover.failing = {2};
  use(streamer, mover, 0);
  use(streamer, mover, 1);
  EXPECT_THROW(streamer.acquire(2), std::runtime_error);
  EXPECT_FALSE(streamer.is_held(2));
  streamer.end_call();
  mover.failing.clear();
  for (const std::size_t unit : {0, 1, 2, 3}) use(streamer, mover, unit);
}

TEST(AStreamer, NamesTheUnitThatHasNoSlot) {
  FakeMover mover(std::vector<double>(2, 1), 1);
  Streamer streamer(2, 1, mover, [](std::size_t unit) { return fmt::format("layers.{}", unit); });
  streamer.acquire(0);
  try {
    streamer.acquire(1);
    FAIL() << "there is no slot";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("module 'layers.1' is used while all 1 slots"),
              std::string::npos)
        << error.what();
  }
}

TEST(AStreamer, SaysSoWhenEverySlotIsInUse) {
  FakeMover mover(std::vector<double>(3, 1), 2);
  Streamer streamer(3, 2, mover);
  streamer.acquire(0);
  streamer.acquire(1);
  EXPECT_THROW(streamer.acquire(2), Error);
  streamer.acquire(1);  // nested: it is there
  streamer.release(1);
  EXPECT_TRUE(streamer.is_held(1));
  streamer.abandon();
  EXPECT_FALSE(streamer.is_held(1));
  use(streamer, mover, 2);
}

// Any order, with branches, repetitions, nested uses, changes, failures and calls that break off:
// a unit is in its slot whenever it is held, and no slot is written while it is read.
TEST(AStreamer, SurvivesWhateverComes) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const std::size_t n = 1 + rng.below(9);
    const std::size_t slots = 1 + rng.below(4);
    FakeMover mover(std::vector<double>(n, 3), slots);
    Streamer streamer(n, slots, mover);
    std::map<std::size_t, int> held;
    for (int step = 0; step < 300; ++step) {
      const std::size_t unit = rng.below(n);
      mover.fail_start = rng.below(20) == 0;
      mover.failing.clear();
      if (rng.below(15) == 0) mover.failing.insert(rng.below(n));
      const auto what = rng.below(12);
      if (what < 6) {
        try {
          const std::size_t slot = streamer.acquire(unit);
          EXPECT_EQ(mover.unit_in(slot), unit);
          ++held[unit];
        } catch (const std::runtime_error&) {
        }
      } else if (what < 9 && !held.empty()) {
        const auto which = std::next(held.begin(), static_cast<long>(rng.below(held.size())));
        streamer.release(which->first);
        if (--which->second == 0) held.erase(which);
      } else if (what == 9) {
        streamer.end_call();
      } else if (what == 10) {
        streamer.abandon();
        held.clear();
      } else if (!held.contains(unit)) {
        streamer.invalidate(unit);
      }
      for (std::size_t u = 0; u < n; ++u) EXPECT_EQ(streamer.is_held(u), held.contains(u));
    }
    EXPECT_EQ(streamer.stats().copies, mover.copies);
  }
}

// Every other call leaves units out, in another order: as if each kind were the only one.
TEST(AStreamer, KnowsTheOrderOfEachKindOfCall) {
  FakeMover mover({10, 10, 10, 10, 10, 10}, 2);
  Streamer streamer(6, 2, mover);
  const std::vector<std::vector<std::size_t>> orders = {{0, 1, 2, 3, 4, 5}, {0, 4, 2}};
  std::int64_t misses = 0;
  for (int call = 0; call < 8; ++call) {
    const std::size_t kind = call % 2;
    for (const std::size_t unit : orders[kind]) {
      use(streamer, mover, unit);
      if (unit == 0) streamer.call_is_like(kind);  // what comes first tells
    }
    streamer.end_call();
    if (call == 3) misses = streamer.stats().misses;
  }
  EXPECT_GT(misses, 0);
  EXPECT_EQ(streamer.stats().misses, misses);
}

TEST(AStreamer, GoesOnInACallWhoseKindIsNew) {
  FakeMover mover({10, 10, 10}, 2);
  Streamer streamer(3, 2, mover);
  use(streamer, mover, 0);
  streamer.call_is_like(3);
  use(streamer, mover, 2);
  streamer.end_call();
  const auto misses = streamer.stats().misses;
  for (int call = 0; call < 3; ++call) {
    for (const std::size_t unit : {0, 2}) use(streamer, mover, unit);
    streamer.end_call();
  }
  EXPECT_EQ(streamer.stats().misses, misses);
}

}  // namespace
}  // namespace kerf
