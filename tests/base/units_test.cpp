// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kerf/base/error.h"

namespace kerf {
namespace {

std::string refusal(std::string_view text) {
  try {
    parse_bytes(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(ASize, IsReadWithAnyUsualUnit) {
  EXPECT_EQ(parse_bytes("4096").count, 4096);
  EXPECT_EQ(parse_bytes("17B").count, 17);
  EXPECT_EQ(parse_bytes("2GiB").count, 2147483648);
  EXPECT_EQ(parse_bytes("512 MiB").count, 536870912);
  EXPECT_EQ(parse_bytes("  1.5GB ").count, 1500000000);
  EXPECT_EQ(parse_bytes("2g").count, 2147483648);
  EXPECT_EQ(parse_bytes("3kb").count, 3000);
  EXPECT_EQ(parse_bytes("1e3 KiB").count, 1024000);
  EXPECT_EQ(parse_bytes("0").count, 0);
  EXPECT_EQ(parse_bytes("1048576TiB").count, std::int64_t{1} << 60);
}

TEST(ASize, IsRefusedWithTheTextAndARemedy) {
  EXPECT_THAT(refusal("2 parsecs"), testing::HasSubstr("unknown unit 'parsecs' in '2 parsecs'"));
  for (const char* text : {"", " ", "GiB", "abc", "inf", "nan", "infGiB", "1e999", "+5", "--5"}) {
    EXPECT_THAT(refusal(text), testing::HasSubstr("is not a size")) << text;
  }
  EXPECT_THAT(refusal("-1GiB"), testing::HasSubstr("negative"));
  EXPECT_THAT(refusal("1e30"), testing::HasSubstr("absurdly large"));
  EXPECT_THAT(refusal("1048577TiB"), testing::HasSubstr("absurdly large"));
  EXPECT_THAT(refusal("0x10"), testing::HasSubstr("unknown unit"));
}

TEST(ASize, PrintsThreeSignificantDigits) {
  EXPECT_EQ(to_string(Bytes{0}), "0 B");
  EXPECT_EQ(to_string(Bytes{17}), "17 B");
  EXPECT_EQ(to_string(Bytes{1023}), "1023 B");
  EXPECT_EQ(to_string(Bytes{1024}), "1.00 KiB");
  EXPECT_EQ(to_string(Bytes{1610612736}), "1.50 GiB");
  EXPECT_EQ(to_string(Bytes{10 * 1024}), "10.0 KiB");
  EXPECT_EQ(to_string(Bytes{1024 * 1024 - 1}), "1.00 MiB");
  EXPECT_EQ(to_string(Bytes{-2048}), "-2.00 KiB");
}

TEST(ASize, SurvivesTheExtremesOfItsType) {
  EXPECT_NO_THROW(to_string(Bytes{std::numeric_limits<std::int64_t>::max()}));
  EXPECT_NO_THROW(to_string(Bytes{std::numeric_limits<std::int64_t>::min()}));
}

TEST(ATime, PrintsThreeSignificantDigits) {
  EXPECT_EQ(to_string(Nanoseconds{0}), "0.00 ns");
  EXPECT_EQ(to_string(Nanoseconds{3.2e6}), "3.20 ms");
  EXPECT_EQ(to_string(Nanoseconds{41000}), "41.0 us");
  EXPECT_EQ(to_string(Nanoseconds{999.7}), "1.00 us");
  EXPECT_EQ(to_string(Nanoseconds{9.996}), "10.0 ns");
  EXPECT_EQ(to_string(Nanoseconds{1.5e9}), "1.50 s");
  EXPECT_EQ(to_string(Nanoseconds{-1.5e9}), "-1.50 s");
}

TEST(Units, AddSubtractAndCompare) {
  Bytes bytes{3};
  bytes += Bytes{4};
  bytes -= Bytes{1};
  EXPECT_EQ(bytes, Bytes{6});
  EXPECT_EQ(bytes * 2, Bytes{12});
  EXPECT_LT(Bytes{1}, Bytes{2});
  EXPECT_EQ(Nanoseconds{6} / Nanoseconds{4}, 1.5);
  EXPECT_EQ(Nanoseconds{6} / 4 * 2 + Nanoseconds{1} - Nanoseconds{2}, Nanoseconds{2});
}

}  // namespace
}  // namespace kerf
