// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The exact contiguous optimum of a LoadProblem for `throughput`: the least max load of all chains of
// ideals (sets of units closed under forward predecessors), each device one difference of two that
// follow each other (Tarnawski et al., NeurIPS 2020, section 5.1). Accelerators and CPU in any order;
// all CPUs count as one. A group without time shares its only neighbour's device where this loses
// nothing.
#pragma once

#include "kerf/partition/load/load_search.h"

namespace kerf::partition {

// How far the search may go; what is over it is answered with the best plan found.
struct IdealLimits {
  std::size_t max_ideals = 1'000'000;
  std::size_t max_links = 3'000'000;  // ideals that differ by one group
};

struct IdealAnswer : LoadAnswer {
  std::size_t num_ideals = 0;    // 0: more than the limits, then `optimal` is false
  double lower_bound = 0;        // of contiguous plans; the objective when optimal
  int num_decisions = 0;
  bool is_infeasible() const { return device.empty(); }
};

// `optimal` is proved within 1e-9 of the value. An answer without devices: no contiguous plan fits
// the memory when `optimal`, else none was found. `truncated`: too many ideals, or out of time.
IdealAnswer find_contiguous(const LoadProblem& problem, const LoadOptions& options,
                            const IdealLimits& limits = {});

}  // namespace kerf::partition
