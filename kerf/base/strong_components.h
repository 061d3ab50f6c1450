// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Vertices that lead to each other, by Tarjan (1972), without recursion: graphs are as deep as
// models are long. O(vertices + edges).
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/base/rows.h"

namespace kerf {

// By vertex, a vertex that stands for its component: the same for all of one component, and one of
// them.
std::vector<std::uint32_t> strong_components(const Rows& successors);

}  // namespace kerf
