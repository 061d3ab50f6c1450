// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kerf/base/outcome.h"

namespace kerf {
namespace {

TEST(AnError, KnowsItsKind) {
  const Error error(ErrorKind::invalid_plan, "[room.function] found; expected; do");
  EXPECT_EQ(error.kind(), ErrorKind::invalid_plan);
  EXPECT_STREQ(error.what(), "[room.function] found; expected; do");
  EXPECT_EQ(to_string(ErrorKind::missing_backend), "missing backend");
}

TEST(ABrokenInvariant, ThrowsWithThePlaceAndTheCondition) {
  try {
    KERF_CHECK(1 + 1 == 3, "arithmetic");
    FAIL() << "not thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::internal);
    EXPECT_THAT(error.what(), testing::HasSubstr("error_test.cpp"));
    EXPECT_THAT(error.what(), testing::HasSubstr("1 + 1 == 3"));
    EXPECT_THAT(error.what(), testing::HasSubstr("arithmetic"));
  }
}

struct Reason {
  int bytes_short = 0;
};

TEST(AnOutcome, HoldsAnAnswerOrAReason) {
  Outcome<std::string, Reason> answer(std::string("plan"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(*answer, "plan");
  EXPECT_EQ(answer->size(), 4U);
  *answer += "!";
  EXPECT_EQ(answer.value(), "plan!");

  const Outcome<std::string, Reason> none(Reason{7});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.reason().bytes_short, 7);
}

TEST(AnOutcome, ThrowsWhenAskedForWhatItDoesNotHold) {
  const Outcome<std::string, Reason> none(Reason{7});
  const Outcome<std::string, Reason> answer(std::string("plan"));
  EXPECT_THROW((void)none.value(), Error);
  EXPECT_THROW((void)answer.reason(), Error);
}

}  // namespace
}  // namespace kerf
