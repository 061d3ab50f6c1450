// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/base/strong_components.h"

#include <gtest/gtest.h>

#include "kerf/base/rng.h"

namespace kerf {
namespace {

std::vector<std::vector<bool>> reachable(const Rows& next) {
  std::vector<std::vector<bool>> out(next.size(), std::vector<bool>(next.size(), false));
  for (std::uint32_t start = 0; start < next.size(); ++start) {
    std::vector<std::uint32_t> stack{start};
    while (!stack.empty()) {
      const std::uint32_t at = stack.back();
      stack.pop_back();
      if (out[start][at]) continue;
      out[start][at] = true;
      stack.insert(stack.end(), next[at].begin(), next[at].end());
    }
  }
  return out;
}

TEST(StrongComponents, AreTheVerticesThatLeadToEachOther) {
  int together = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    const auto count = static_cast<std::uint32_t>(1 + rng.below(12));
    Pairs edges;
    for (std::uint64_t e = rng.below(2 * count); e > 0; --e) {
      edges.emplace_back(static_cast<std::uint32_t>(rng.below(count)),
                         static_cast<std::uint32_t>(rng.below(count)));
    }
    const Rows next = to_rows(count, edges);
    const auto component = strong_components(next);
    const auto leads = reachable(next);
    for (std::uint32_t a = 0; a < count; ++a) {
      EXPECT_EQ(component[component[a]], component[a]) << seed;
      for (std::uint32_t b = 0; b < count; ++b) {
        EXPECT_EQ(component[a] == component[b], leads[a][b] && leads[b][a]) << seed;
        together += a < b && component[a] == component[b] ? 1 : 0;
      }
    }
  }
  EXPECT_GT(together, 50);
}

TEST(StrongComponents, OfALongChainNeedNoDeepStack) {
  constexpr std::uint32_t kLength = 1'000'000;
  Rows next;
  for (std::uint32_t v = 0; v < kLength; ++v) {
    const std::uint32_t to = v + 1;
    next.append(v + 1 < kLength ? std::span(&to, 1) : std::span<const std::uint32_t>());
  }
  const auto component = strong_components(next);
  for (std::uint32_t v = 0; v < kLength; v += 1000) EXPECT_EQ(component[v], v);
}

}  // namespace
}  // namespace kerf
