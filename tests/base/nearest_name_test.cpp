// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/nearest_name.h"

#include <gtest/gtest.h>

#include <vector>

namespace kerf {
namespace {

const std::vector<std::string> kNames = {"sgd", "adam", "adamw", "rmsprop"};

TEST(TheNearestName, IsAnEditAway) {
  EXPECT_EQ(nearest_name("admaw", kNames), "adamw");
  EXPECT_EQ(nearest_name("RMSprop", kNames), "rmsprop");
  EXPECT_EQ(nearest_name("adm", kNames), "adam");
  EXPECT_EQ(nearest_name_hint("adamx", kNames), "; did you mean 'adam'?");
}

TEST(TheNearestName, IsNoneWhereNoneIsNear) {
  EXPECT_EQ(nearest_name("lion", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name_hint("lion", kNames), "");
}

}  // namespace
}  // namespace kerf
