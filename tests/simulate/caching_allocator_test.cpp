// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/caching_allocator.h"

#include <gtest/gtest.h>

#include <random>

namespace kerf {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

TEST(TheCachingAllocator, RoundsSmallBlocksAndSharesTheirSegments) {
  CachingAllocator memory;
  memory.allocate(Bytes{1});
  memory.allocate(Bytes{513});
  EXPECT_EQ(memory.allocated(), Bytes{3 * 512});
  EXPECT_EQ(memory.reserved(), Bytes{2 * kMiB});
}

TEST(TheCachingAllocator, TakesSegmentsBySize) {
  CachingAllocator memory;
  memory.allocate(Bytes{kMiB});
  EXPECT_EQ(memory.reserved(), Bytes{2 * kMiB});
  memory.allocate(Bytes{kMiB + 1});
  EXPECT_EQ(memory.reserved(), Bytes{22 * kMiB});
  memory.allocate(Bytes{11 * kMiB});  // the rest of the segment holds it
  EXPECT_EQ(memory.reserved(), Bytes{22 * kMiB});
  memory.allocate(Bytes{11 * kMiB - 5});
  EXPECT_EQ(memory.reserved(), Bytes{34 * kMiB});
}

TEST(TheCachingAllocator, LeavesARestOfAMegabyteInALargeBlock) {
  CachingAllocator memory;
  const BlockId block = memory.allocate(Bytes{12 * kMiB});
  memory.free(block);
  const BlockId again = memory.allocate(Bytes{11 * kMiB});
  EXPECT_EQ(memory.allocated(), Bytes{12 * kMiB});
  memory.free(again);
  memory.allocate(Bytes{10 * kMiB});
  EXPECT_EQ(memory.allocated(), Bytes{10 * kMiB});
  EXPECT_EQ(memory.reserved(), Bytes{12 * kMiB});
}

TEST(TheCachingAllocator, JoinsFreeNeighbours) {
  CachingAllocator memory;
  const BlockId a = memory.allocate(Bytes{6 * kMiB});
  const BlockId b = memory.allocate(Bytes{6 * kMiB});
  const BlockId c = memory.allocate(Bytes{6 * kMiB});
  memory.free(a);
  memory.free(c);
  memory.free(b);
  memory.allocate(Bytes{20 * kMiB});
  EXPECT_EQ(memory.reserved(), Bytes{20 * kMiB});
}

TEST(TheCachingAllocator, GivesBackWholeSegmentsAlone) {
  CachingAllocator memory;
  const BlockId a = memory.allocate(Bytes{6 * kMiB});
  const BlockId b = memory.allocate(Bytes{30 * kMiB});
  memory.free(b);
  memory.empty_cache();
  EXPECT_EQ(memory.reserved(), Bytes{20 * kMiB});
  memory.free(a);
  memory.empty_cache();
  EXPECT_EQ(memory.reserved(), Bytes{0});
  EXPECT_EQ(memory.peak_reserved(), Bytes{50 * kMiB});
}

// However blocks come and go, what is in use is a part of what is reserved, and all comes back.
TEST(TheCachingAllocator, LosesNothing) {
  std::mt19937 random(7);
  CachingAllocator memory;
  std::vector<BlockId> live;
  for (int i = 0; i < 20000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      const int bits = static_cast<int>(random() % 26);
      live.push_back(
          memory.allocate(Bytes{1 + static_cast<std::int64_t>(random() % (1u << bits))}));
    } else {
      const std::size_t k = random() % live.size();
      memory.free(live[k]);
      live[k] = live.back();
      live.pop_back();
    }
    ASSERT_LE(memory.allocated(), memory.reserved());
  }
  for (const BlockId block : live) memory.free(block);
  EXPECT_EQ(memory.allocated(), Bytes{0});
  memory.empty_cache();
  EXPECT_EQ(memory.reserved(), Bytes{0});
}

}  // namespace
}  // namespace kerf
