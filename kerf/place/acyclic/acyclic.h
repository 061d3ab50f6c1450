// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Parts of a graph such that no edge leads from a later part to an earlier one, part i for device
// i: stages of a pipeline. Two goals: the least busy busiest part, or few tensors between parts
// whose times are balanced.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/base/infinity.h"
#include "kerf/place/instance.h"
#include "kerf/place/load_search.h"  // Minimise

namespace kerf::place {

struct PartLimit {
  double slowness = 1;
  double memory = kInfinity;
};

struct AcyclicOptions {
  std::vector<PartLimit> parts;  // in the order of the stages
  Minimise minimise = Minimise::stage_time;
  // edge_cut: a part's time is at most (1 + imbalance) x its share of the total, shares in
  // proportion to speed; a larger group may have a part for itself. Where no such parts are found,
  // the least time in excess goes before the cut.
  double imbalance = 0.03;
  bool multilevel = true;  // false: orders cut into runs, and moves, on the groups alone
  double seconds = 1;      // about; turned into counted work: the same answer on every machine
  double clock = 0;        // seconds after which it stops in any case; 0: never
  std::uint64_t seed = 0;
  int threads = 1;  // the answer does not depend on them
};

struct AcyclicAnswer {
  std::vector<SlotId> part;  // by group; empty: nothing was found that fits the memory
  double cut = 0;            // as edge_cut counts
  double largest_load = 0;   // as stage_time counts
  bool truncated = false;    // the clock struck
};

// Edge cuts leave no part empty where there are groups and memory for it; stage times may.
AcyclicAnswer acyclic_partition(const Instance& groups, const AcyclicOptions& options);

}  // namespace kerf::place
