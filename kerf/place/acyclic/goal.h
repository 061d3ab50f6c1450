// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the acyclic search is after: limits of the parts, and an order of partitions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/place/acyclic/acyclic.h"

namespace kerf::place::acyclic {

using Numbers = std::vector<std::uint32_t>;

// Of an instance whose devices are the parts.
struct Goal {
  Minimise minimise = Minimise::stage_time;
  std::vector<double> limit;  // by part, of its time at slowness 1; infinite for stage_time
  double total_time = 0;
  double total_bytes = 0;
  double least_load = 0;  // the largest load of the best balance, tensors left out
  bool memory_binds = false;

  std::uint32_t parts() const { return static_cast<std::uint32_t>(limit.size()); }
  bool is_cut() const { return minimise == Minimise::edge_cut; }
};

// The groups as an instance of their parts: device i is part i, and none is a CPU.
Instance with_parts(const Instance& groups, const AcyclicOptions& options);
Goal find_goal(const Instance& level, const AcyclicOptions& options);

// Smaller is better, the first that differs decides.
struct Score {
  double memory = 0;  // in excess, relative
  double time = 0;    // in excess, relative; edge_cut alone
  double empty = 0;   // parts; edge_cut alone
  double value = 0;   // cut, or largest load
  double second = 0;  // the other one
};
bool is_better(const Score& a, const Score& b);

}  // namespace kerf::place::acyclic
