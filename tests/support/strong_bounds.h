// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// All the bounds that methods may give as theirs.
#pragma once

#include <vector>

#include "kerf/partition/bounds/bounds.h"
#include "kerf/partition/lower/split_model.h"
#include "kerf/place/bound/load_bounds.h"

namespace kerf {

// Of the problem's objective, minimum cuts included: those of partition/bounds and stronger ones.
// `seconds` as for place::find_load_bounds.
inline std::vector<LowerBound> strong_bounds(const Problem& problem, double seconds = 10) {
  std::vector<LowerBound> bounds = partition::lower_bounds(problem);
  if (problem.objective != Objective::throughput) return bounds;
  const partition::SplitModel model =
      partition::make_split_model(problem, partition::ModelUse::bound);
  for (const LowerBound& bound : place::find_load_bounds(model.instance, seconds)) {
    const bool known = bound.name == "work" || bound.name == "unit" || bound.name == "memory";
    if (!known) bounds.push_back(bound);
  }
  return bounds;
}

}  // namespace kerf
