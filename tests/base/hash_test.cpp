// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/hash.h"

#include <gtest/gtest.h>

#include <set>

namespace kerf {
namespace {

TEST(AHash, IsTheSameOnEveryMachine) {
  // Written into files: changing these values breaks every saved plan.
  EXPECT_EQ(Hasher().hex(), "43d0c245d7bb4a8ebc0346bd7bde60fc");
  EXPECT_EQ(Hasher().add("kerf").add(std::int64_t{-1}).hex(), "111d449e87e7732688ea47a246250e0c");
  EXPECT_EQ(Hasher().add("a text that is longer than one word of the state").hex(),
            "856dd36aa4d81f593e10a5349885a374");
}

TEST(AHash, FramesItsPieces) {
  EXPECT_NE(Hasher().add("ab").add("c").hex(), Hasher().add("a").add("bc").hex());
  EXPECT_NE(Hasher().add("").add("a").hex(), Hasher().add("a").add("").hex());
  EXPECT_NE(Hasher().add("a").hex(), Hasher().add(std::string_view("a\0", 2)).hex());
  EXPECT_NE(Hasher().add("").hex(), Hasher().hex());
}

TEST(AHash, ChangesWithEveryBit) {
  std::set<std::string> seen;
  std::string text(40, 'x');
  seen.insert(Hasher().add(text).hex());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      EXPECT_TRUE(seen.insert(Hasher().add(changed).hex()).second) << i << ' ' << bit;
    }
  }
}

TEST(AQuickHash, ChangesWithEveryBitAndWithTheSize) {
  for (const std::size_t size : {0, 1, 7, 8, 31, 32, 33, 100}) {
    std::vector<std::byte> bytes(size, std::byte{'x'});
    std::set<std::uint64_t> seen{quick_hash(bytes.data(), size)};
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] ^= std::byte{1} << bit % 8;
      EXPECT_TRUE(seen.insert(quick_hash(bytes.data(), size)).second) << size << ' ' << bit;
      bytes[bit / 8] ^= std::byte{1} << bit % 8;
    }
    bytes.emplace_back();
    EXPECT_TRUE(seen.insert(quick_hash(bytes.data(), bytes.size())).second) << size;
  }
}

// The highest bits of many words: a product of theirs alone would forget all but their parity.
TEST(AQuickHash, SeesThatAllSignsChange) {
  std::vector<double> numbers(64, 1.5);
  const auto hash = [&] {
    return quick_hash(reinterpret_cast<const std::byte*>(numbers.data()),
                      numbers.size() * sizeof(double));
  };
  const std::uint64_t before = hash();
  for (double& number : numbers) number = -number;
  EXPECT_NE(hash(), before);
}

}  // namespace
}  // namespace kerf
