// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The exact contiguous optimum of an Instance for `throughput`: the least max load of all chains
// of ideals (sets of units closed under forward predecessors), each device one difference of two
// that follow each other (Tarnawski et al., NeurIPS 2020, section 5.1). Accelerators, alike or not,
// and CPU in any order; all CPUs count as one. A group without time shares its only neighbour's
// device where this loses nothing.
#pragma once

#include "kerf/place/load_search.h"

namespace kerf::place {

// How far the search may go (about 100 MB); what is over it is answered with the best plan found.
struct IdealLimits {
  std::size_t max_ideals = 400'000;
  std::size_t max_links = 4'000'000;   // pairs of ideals that differ by one group
  std::size_t max_states = 6'000'000;  // pairs of an ideal and a choice of devices for it
};

struct IdealAnswer : LoadAnswer {
  std::size_t num_ideals = 0;  // 0: not counted, or more than the limits
  int num_decisions = 0;       // times it asked for a plan below the best
};

// `optimal` is proved within 1e-9 of the value, or meets options.good_enough. An answer without
// devices: no contiguous plan fits the memory when `optimal`, else none was found. `truncated`: too
// many ideals or states, or out of time. The same on any number of threads; it uses one.
IdealAnswer find_contiguous(const Instance& instance, const LoadOptions& options,
                            const IdealLimits& limits = {});

// The best split of one topological order into intervals, a device each (section 5.1.2: "DPL"):
// where there are too many ideals. Of several natural orders the one with the best split.
// `optimal`: no split of any of these orders is better, within 1e-9 of the value (for a graph that
// is a chain, no contiguous plan is), or options.good_enough is met. Without devices: none of them
// can be split so that it fits the memory, when `optimal`; else no such split was found.
// `truncated`: out of time, or too many choices of unequal devices.
LoadAnswer find_chain(const Instance& instance, const LoadOptions& options);

}  // namespace kerf::place
