// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/partition/acyclic/goal.h"
#include "kerf/partition/acyclic/level.h"

namespace kerf::partition::acyclic {

// Halves of a goal of two parts as METIS finds them without regard to directions, each then mended
// in several ways: which half comes first, and whether vertices that would lead back go up or down.
// Limits may be broken. None without METIS. Not to be called from two threads at once.
std::vector<Numbers> undirected_halves(const Level& level, const Goal& goal, std::uint64_t seed);

}  // namespace kerf::partition::acyclic
