// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/residence/host_share.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kerf/base/rng.h"
#include "kerf/place/residence/stream_time.h"

namespace kerf {
namespace {

// All units are streamed through two slots.
struct Streamed {
  ResidenceProblem problem;
  Residences residences;
};

Streamed streamed(std::size_t count, std::int64_t bytes) {
  Streamed out;
  out.problem.units.assign(count, {{bytes}, {1}});
  out.problem.memory = {2 * bytes};
  out.residences = {std::vector<Residence>(count, Residence::streamed), 2, {bytes}};
  return out;
}

RowTimes times_of(const Streamed& given, std::int64_t rows, double device, double host) {
  const std::size_t count = given.problem.units.size();
  return {rows, std::vector<Nanoseconds>(count, {device}), std::vector<Nanoseconds>(count, {host})};
}

std::size_t count_of(const HostShare& share, std::int64_t rows) {
  return static_cast<std::size_t>(std::count_if(share.most_rows.begin(), share.most_rows.end(),
                                                [&](std::int64_t most) { return most >= rows; }));
}

TEST(AHostAsFastAsTheLink, ComputesHalfOfTheUnits) {
  const Streamed given = streamed(20, 100);
  const std::vector<RowTimes> times = {times_of(given, 1, 1, 100)};
  const HostShare share = share_with_host(given.problem, given.residences, times);
  EXPECT_EQ(count_of(share, 1), 10U);
  EXPECT_LT(share.time.count, 1.05 * 1010);
}

TEST(AHost, ComputesFewerUnitsOfMoreRowsAndThoseAmongTheSame) {
  Streamed given = streamed(20, 100);
  given.residences.slots = 8;
  const std::vector<RowTimes> times = {times_of(given, 1, 1, 100), times_of(given, 4, 1, 400),
                                       times_of(given, 64, 1, 6400)};
  const HostShare share = share_with_host(given.problem, given.residences, times);
  EXPECT_EQ(count_of(share, 1), 10U);
  EXPECT_EQ(count_of(share, 4), 4U);
  EXPECT_EQ(count_of(share, 64), 0U);
}

TEST(AHost, ComputesNothingThatItMayNotOrThatIsQuickerOnTheDevice) {
  Streamed given = streamed(6, 100);
  std::vector<RowTimes> times = {times_of(given, 1, 1, 10'000)};
  EXPECT_EQ(count_of(share_with_host(given.problem, given.residences, times), 1), 0U);
  times = {times_of(given, 1, 1, 10)};
  for (std::size_t u = 0; u < 6; u += 2) times[0].host_time[u] = kNotOnTheHost;
  given.residences.of[1] = Residence::resident;
  const HostShare share = share_with_host(given.problem, given.residences, times);
  EXPECT_EQ(share.most_rows, (std::vector<std::int64_t>{0, 0, 0, 1, 0, 1}));
}

TEST(AHost, LooksUpWhatItWouldTakeLongToCopy) {
  Streamed given = streamed(5, 100);
  given.problem.units[0].bytes = {1000};
  given.residences.slot_bytes = {1000};
  std::vector<RowTimes> times = {times_of(given, 512, 1, 4000)};
  times[0].host_time[0] = {5};
  const HostShare share = share_with_host(given.problem, given.residences, times);
  EXPECT_EQ(share.most_rows, (std::vector<std::int64_t>{512, 0, 0, 0, 0}));
}

Nanoseconds best_of_all(const ResidenceProblem& problem, Residences residences) {
  const std::vector<Residence> of = residences.of;
  Nanoseconds best{kInfinity};
  for (unsigned chosen = 0; chosen < 1U << of.size(); ++chosen) {
    residences.of = of;
    bool is_allowed = true;
    for (std::size_t u = 0; u < of.size(); ++u) {
      if ((chosen >> u & 1U) == 0) continue;
      is_allowed =
          is_allowed && of[u] == Residence::streamed && problem.units[u].host_time < kNotOnTheHost;
      residences.of[u] = Residence::host;
    }
    if (is_allowed) best = std::min(best, stream_time(problem, residences));
  }
  return best;
}

// Units of all sizes, a few of them: those of models are many and alike.
TEST(TheHostsShare, IsCloseToTheBestOfAllAndNeverBelowIt) {
  Rng rng(7);
  double sum = 0;
  constexpr int kProblems = 300;
  for (int i = 0; i < kProblems; ++i) {
    const std::size_t count = 2 + rng.below(8);
    Streamed given = streamed(count, 0);
    std::vector<RowTimes> times = {times_of(given, 1, 0, 0)};
    for (std::size_t u = 0; u < count; ++u) {
      StreamUnit& unit = given.problem.units[u];
      unit.bytes = {static_cast<std::int64_t>(50 + rng.below(200))};
      given.residences.slot_bytes = std::max(given.residences.slot_bytes, unit.bytes);
      unit.device_time = times[0].device_time[u] = {static_cast<double>(1 + rng.below(40))};
      unit.host_time = times[0].host_time[u] =
          rng.below(4) == 0 ? kNotOnTheHost : Nanoseconds{static_cast<double>(20 + rng.below(300))};
    }
    const HostShare share = share_with_host(given.problem, given.residences, times);
    const Nanoseconds best = best_of_all(given.problem, given.residences);
    ASSERT_GE(share.time.count, best.count * (1 - 1e-9));
    ASSERT_LE(share.time.count, best.count * 2);
    sum += share.time / best;
  }
  EXPECT_LT(sum / kProblems, 1.05);
}

}  // namespace
}  // namespace kerf
