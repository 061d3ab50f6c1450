// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Costs of every size, from 1e-300 to 1e300 and mixed, brought to where sums of doubles are exact
// enough: around 1, and none so large that it swallows the others. Nothing that matters changes: a
// cost above what some split pays in all is in no better split, so that it may be any number above
// that, and a power of two rounds nothing.
#pragma once

#include <limits>

#include "kerf/place/instance.h"
#include "kerf/place/load_problem.h"

namespace kerf::place {

struct CostScale {
  double ceiling = 0;  // no better split pays more; 0: nothing costs anything
  double most = std::numeric_limits<double>::infinity();  // larger costs count as this
  int shift = 0;                                          // costs are multiplied by 2^shift

  double to_scale(double cost) const;     // at most `most`
  double from_scale(double value) const;  // the other way
};

// What everything would cost, each unit where it is slowest and every tensor moved: no split pays
// more.
double sum_of_costs(const Instance& instance);

// From the best of a few simple splits that fit; where none does, from the sum of all costs. Linear
// in units and devices, but for sorting.
CostScale find_cost_scale(const Instance& instance);

// Times of devices that cannot run a node are set to what is known to be too much (CPU) or to its
// time elsewhere (accelerators, whose times are added up in many places).
LoadProblem scale_costs(const LoadProblem& problem, const CostScale& scale);
Instance scale_costs(const Instance& instance, const CostScale& scale);

}  // namespace kerf::place
