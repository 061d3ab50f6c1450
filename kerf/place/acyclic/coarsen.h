// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kerf/base/rng.h"
#include "kerf/place/acyclic/goal.h"
#include "kerf/place/coarsen/contraction.h"

namespace kerf::place::acyclic {

struct CoarsenOptions {
  std::uint32_t target = 500;   // vertices
  const Split* part = nullptr;  // clusters stay inside its parts; null: anywhere
};

// Ever coarser levels, the first contracted from `base`. Adds what it did to `work`.
std::vector<Contraction> coarsen(const Instance& base, const Goal& goal,
                                 const CoarsenOptions& options, Rng& rng, double& work);

}  // namespace kerf::place::acyclic
