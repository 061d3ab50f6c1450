// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What comes from outside is bounded: times that arithmetic would lose, files without an end, bytes
// that are no text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kerf/base/error.h"
#include "kerf/base/file.h"
#include "kerf/base/json.h"
#include "kerf/base/quantity.h"
#include "kerf/base/utf8.h"

namespace kerf {
namespace {

using ::testing::HasSubstr;

TEST(AQuantity, IsZeroOrWithinTheLimits) {
  for (const double good : {0.0, 1.0, 1e-300, 1e300}) EXPECT_TRUE(is_quantity(good)) << good;
  for (const double bad : {-1.0, -1e-310, 1e-301, 1.1e300, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FALSE(is_quantity(bad)) << bad;
  }
  const std::string text = R"({"a": 1e-305, "b": 1e301, "c": -1, "d": 2.5})";
  const JsonDocument document = parse_json(text, "q.json", ErrorKind::invalid_plan);
  const JsonReader reader(document);
  EXPECT_EQ(read_quantity(reader, "d"), 2.5);
  for (const char* key : {"a", "b", "c"}) {
    try {
      read_quantity(reader, key);
      FAIL();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("1e-300 to 1e300"));
    }
  }
}

TEST(AText, IsSearchedForBytesThatAreNoUtf8) {
  const auto bad_at = [](std::string_view text) { return find_invalid_utf8(text); };
  EXPECT_EQ(bad_at("plain"), 5u);
  EXPECT_EQ(bad_at("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), 9u);
  EXPECT_EQ(bad_at("ab\xff"), 2u);
  EXPECT_EQ(bad_at("\xc3"), 0u);              // cut short
  EXPECT_EQ(bad_at("\xc0\x80"), 0u);          // longer than needed
  EXPECT_EQ(bad_at("\xed\xa0\x80"), 0u);      // half a pair
  EXPECT_EQ(bad_at("\xf5\x80\x80\x80"), 0u);  // past the last
}

TEST(AnEndlessFile, IsRefusedWhileItIsRead) {
  for (const char* path : {"/dev/zero", "/dev/urandom"}) {
    try {
      read_file(path);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::io);
      EXPECT_THAT(error.what(), HasSubstr("zero byte"));
    }
  }
}

}  // namespace
}  // namespace kerf
