// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/union_find.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kerf {
namespace {

using testing::ElementsAre;

TEST(AUnionFind, KeepsTheRootItIsTold) {
  UnionFind sets(4);
  EXPECT_TRUE(sets.join_to(3, 1));
  EXPECT_TRUE(sets.join_to(3, 2));
  EXPECT_FALSE(sets.join_to(1, 2));
  EXPECT_EQ(sets.find(1), 3U);
  EXPECT_EQ(sets.find(2), 3U);
  EXPECT_EQ(sets.num_sets(), 2U);
}

TEST(AUnionFind, HasTheLeastForRootAndNumbersSetsByTheirFirst) {
  UnionFind sets(6);
  sets.join(5, 3);
  sets.join(4, 1);
  sets.join(3, 4);
  EXPECT_EQ(sets.find(5), 1U);
  EXPECT_THAT(sets.numbers(), ElementsAre(0, 1, 2, 1, 1, 1));
  EXPECT_EQ(sets.num_sets(), 3U);
}

}  // namespace
}  // namespace kerf
