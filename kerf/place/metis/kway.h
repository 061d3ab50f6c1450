// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// METIS (Karypis and Kumar), where it was found when Kerf was built. Its graph is a form of its own
// because that is what the library takes: undirected, whole weights, 32-bit indices.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/base/id.h"

namespace kerf::place {

bool has_metis();

// METIS' own form: it takes no Instance, but arrays of whole numbers. Undirected, every edge in
// both directions.
struct KwayGraph {
  std::vector<std::int32_t> first;         // by vertex, and one more
  std::vector<std::int32_t> neighbours;    // edges of vertex v: first[v] .. first[v + 1] - 1
  std::vector<std::int32_t> edge_weights;  // by edge, from 1
  std::vector<std::int32_t> vertex_weights;
};
struct KwayOptions {
  int parts = 2;
  double imbalance = 0.03;     // of the heaviest part over its share
  std::vector<double> shares;  // of the parts, summing to 1; empty: equal ones
  std::uint64_t seed = 0;
};

// The part of every vertex, few edges cut. Empty without METIS, or when METIS gives up. One
// thread at a time is let in: METIS has state of its own.
std::vector<SlotId> metis_kway(const KwayGraph& graph, const KwayOptions& options);

}  // namespace kerf::place
