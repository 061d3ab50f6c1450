// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace kerf {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Rows, HoldWhatIsAppended) {
  Rows rows;
  EXPECT_EQ(rows.size(), 0U);
  rows.append(std::array{4U, 2U});
  rows.append({});
  rows.append(std::array{7U});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(rows[0], ElementsAre(4, 2));
  EXPECT_THAT(rows[1], IsEmpty());
  EXPECT_THAT(rows[2], ElementsAre(7));
  EXPECT_EQ(rows.start(2), 2U);
  EXPECT_EQ(rows.length(0), 2U);
  EXPECT_EQ(rows.num_values(), 3U);
}

TEST(Rows, OfPairsAreDistinctAndAscend) {
  const Rows rows = to_rows(3, {{2, 1}, {0, 5}, {2, 0}, {2, 1}});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(rows[0], ElementsAre(5));
  EXPECT_THAT(rows[1], IsEmpty());
  EXPECT_THAT(rows[2], ElementsAre(0, 1));
}

TEST(Rows, TurnRound) {
  const Rows rows = transpose(to_rows(3, {{0, 1}, {2, 1}, {2, 3}}), 4);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_THAT(rows[0], IsEmpty());
  EXPECT_THAT(rows[1], ElementsAre(0, 2));
  EXPECT_THAT(rows[2], IsEmpty());
  EXPECT_THAT(rows[3], ElementsAre(2));
}

}  // namespace
}  // namespace kerf
