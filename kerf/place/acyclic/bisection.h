// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/place/acyclic/multilevel.h"

namespace kerf::place::acyclic {

// Halves of halves: first the earlier parts from the later ones with few nets cut, then the same in
// each half.
Split bisect(const Instance& level, const Goal& goal, Rng& rng, Budget& budget);

}  // namespace kerf::place::acyclic
