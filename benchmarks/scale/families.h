// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Families of models of any size, from a dozen nodes to millions: real graphs with shapes, weights
// and scopes, and a profile with a cost for every node. The same arguments give the same model on
// every machine.
//
//   families::Model model = families::make("transformer", 100'000, /*seed=*/0);
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/profile/profile.h"

namespace kerf::families {

struct Model {
  Graph graph;
  Profile profile;  // source `given`, device kind "cuda", at the graph's example batch
};

// In the order of their difficulty; the last three stand for published problems.
std::vector<std::string_view> names();

// About `nodes` nodes. Blocks that repeat cost the same, operator by operator, unless `noise` (a
// fraction: 0.05 is 5 % up or down) makes every node differ. Throws Error(invalid_argument) that
// lists the names when there is no such family, or when no node is asked for.
//
// The published problems keep to their sizes: t5 has 24 + 24 blocks of (nodes - 6) / 48 nodes
// (774 or 6150 in the publication), t5_3b at most 24 + 24 blocks, tile is exact at 36500.
Model make(std::string_view name, std::size_t nodes, std::uint64_t seed, double noise = 0);

}  // namespace kerf::families
