// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/optimizer.h"

#include <gtest/gtest.h>

#include "kerf/base/error.h"

namespace kerf {
namespace {

TEST(AnOptimizer, IsFoundByItsName) {
  for (const std::string& name : optimizer_names()) EXPECT_EQ(optimizer(name).name, name);
  EXPECT_EQ(optimizer("adamw").state, 2);
  EXPECT_EQ(optimizer("sgd").state, 0);
}

TEST(AnOptimizer, ThatIsUnknownIsRefusedWithTheNearestName) {
  try {
    optimizer("admw");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "[profile.optimizer] unknown optimizer 'admw'; expected one of sgd, sgd_momentum, "
                 "adam, adamw, rmsprop, adagrad, none; did you mean 'adamw'?");
  }
}

}  // namespace
}  // namespace kerf
