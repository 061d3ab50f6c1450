// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// No planner writes on standard output: what the commands print there is theirs alone.
#include <gtest/gtest.h>

#include "kerf/place/metis/kway.h"

namespace kerf::place {
namespace {

// A line of vertices of which one outweighs all others: METIS is left with empty halves, and says
// so on standard output.
KwayGraph lopsided_line(std::int32_t vertices, std::int32_t heavy) {
  KwayGraph graph;
  graph.first.push_back(0);
  for (std::int32_t v = 0; v < vertices; ++v) {
    graph.vertex_weights.push_back(v == heavy ? 100'000'000 : 1);
    for (const std::int32_t other : {v - 1, v + 1}) {
      if (other < 0 || other == vertices) continue;
      graph.neighbours.push_back(other);
      graph.edge_weights.push_back(1);
    }
    graph.first.push_back(static_cast<std::int32_t>(graph.neighbours.size()));
  }
  return graph;
}

TEST(Metis, SaysNothingOnStandardOutput) {
  if (!has_metis()) GTEST_SKIP() << "built without METIS";
  testing::internal::CaptureStdout();
  for (std::int32_t heavy = 0; heavy < 9; ++heavy) {
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      metis_kway(lopsided_line(9, heavy), {7, 0.03, {}, seed});
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

}  // namespace
}  // namespace kerf::place
