// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/topological_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kerf {
namespace {

using testing::ElementsAre;

// 4 -> 0, 4 -> 3, 1 -> 2.
const Rows kForest = to_rows(5, {{4, 0}, {4, 3}, {1, 2}});

TEST(ATopologicalOrder, TakesWhoHasWaitedLongest) {
  EXPECT_THAT(first_come_order(5, each_next_of(kForest)), ElementsAre(1, 4, 2, 0, 3));
}

TEST(ATopologicalOrder, TakesTheLeast) {
  EXPECT_THAT(least_first_order(5, each_next_of(kForest), by_own_number()),
              ElementsAre(1, 2, 4, 0, 3));
  const auto greatest = [](std::uint32_t v) { return -static_cast<int>(v); };
  EXPECT_THAT(least_first_order(5, each_next_of(kForest), greatest), ElementsAre(4, 3, 1, 2, 0));
}

TEST(ATopologicalOrder, LeavesOutCyclesAndWhatIsBehindThem) {
  const Rows rows = to_rows(4, {{0, 1}, {1, 2}, {2, 1}, {2, 3}});
  EXPECT_THAT(first_come_order(4, each_next_of(rows)), ElementsAre(0));
  EXPECT_THAT(least_first_order(4, each_next_of(rows), by_own_number()), ElementsAre(0));
}

TEST(ATopologicalOrder, SaysWhereEachStands) {
  EXPECT_THAT(places_in({2, 0, 1}), ElementsAre(1, 2, 0));
}

}  // namespace
}  // namespace kerf
