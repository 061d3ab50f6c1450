// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Exact search over all splits by minimum cuts. Optimum and proof on hundreds of units where
// communication counts; within its budget elsewhere, with the best bound reached.
#pragma once

#include <cstdint>
#include <optional>

#include "kerf/place/load_search.h"

namespace kerf::place {

struct ProofOptions {
  std::int64_t work_budget = 400'000'000;  // arcs looked at, some 1e8 a second; decides
  double time_budget = 10;                 // seconds; a safety stop
  // Splits better than the incumbent by less than this share do not count.
  double gap = 1e-6;
  // The tightest of find_load_bounds, where it is known: it is then not looked for again.
  std::optional<LoadBound> known = std::nullopt;
};

struct Proof {
  // The incumbent or better; `optimal` when the bound meets it to within the gap. Its device list
  // is empty when no split is known; `optimal` then says that none fits.
  LoadAnswer answer;
  LoadBound bound;
  std::int64_t nodes = 0;  // of the search tree
};

// `incumbent`: a split to improve on or prove, its objective taken on trust; an empty device list
// means that none is known, and little is lost by that where the bounds are close.
// Deterministic unless the clock stops it (`answer.truncated`).
Proof prove(const Instance& problem, const LoadAnswer& incumbent, const ProofOptions& options = {});

}  // namespace kerf::place
