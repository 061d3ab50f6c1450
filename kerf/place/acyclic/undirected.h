// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/acyclic/goal.h"
#include "kerf/place/instance.h"

namespace kerf::place::acyclic {

// Halves of a goal of two parts as METIS finds them without regard to directions, as they are and
// with the other one first. None without METIS.
std::vector<Split> undirected_halves(const Instance& level, const Goal& goal, std::uint64_t seed);

// Without edges from half 1 to half 0: who leads into half 0 goes there.
Split pulled_up(const Instance& level, Split half);
// The same: who follows half 1 goes there.
Split pushed_down(const Instance& level, Split half);

}  // namespace kerf::place::acyclic
