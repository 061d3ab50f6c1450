// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Exact search over all splits by minimum cuts. Optimum and proof on hundreds of units where
// communication counts; within its budget elsewhere, with the best bound reached.
#pragma once

#include <cstdint>

#include "kerf/place/load_search.h"
#include "kerf/place/lower_bound.h"

namespace kerf::place {

struct ProofOptions {
  std::int64_t work_budget = 400'000'000;  // arcs looked at, some 1e8 a second; decides
  double time_budget = 10;                 // seconds; a safety stop
  // Splits better than the incumbent by less than this share do not count.
  double gap = 1e-6;
};

struct Proof {
  // The incumbent or better; `optimal` when the bound meets it to within the gap. Its device list
  // is empty when no split is known; `optimal` then says that none fits.
  LoadAnswer answer;
  LowerBound bound;
  std::int64_t nodes = 0;  // of the search tree
};

// `incumbent`: a split to improve on or prove, its objective taken on trust; an empty device list
// means that none is known, and little is lost by that where the bound is close. `known`: the
// tightest bound at hand (bound/load_bounds.h), from which the search starts.
// `answer.truncated`: its work was used up, or the clock stopped it, and there may be a better
// split. Deterministic unless it was the clock.
Proof prove(const Instance& problem, const LoadAnswer& incumbent, const LowerBound& known,
            const ProofOptions& options = {});

}  // namespace kerf::place
