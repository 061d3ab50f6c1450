// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/printable.h"

#include <gtest/gtest.h>

namespace kerf {
namespace {

TEST(PrintableText, KeepsWordsOfAnyLanguage) {
  EXPECT_EQ(printable("caf\xc3\xa9 'x'"), "caf\xc3\xa9 'x'");
}

TEST(PrintableText, WritesControlCharactersOut) {
  EXPECT_EQ(printable(std::string_view("a\0b\x1b[2J\x7f", 8)), "a\\x00b\\x1b[2J\\x7f");
  EXPECT_EQ(printable("a\nb"), "a\\x0ab");
  EXPECT_EQ(printable("a\n  b\r"), "a\n  b\\x0d");
}

}  // namespace
}  // namespace kerf
