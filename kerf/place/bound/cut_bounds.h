// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Bounds from communication: the least a device pays that holds some unit, or the least that the
// devices of two units pay, together or apart.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kerf/place/lower_bound.h"
#include "kerf/place/mincut/cut_network.h"
#include "kerf/place/search_budget.h"

namespace kerf::place {

// `problem` must outlive it. Where the budget ends early the bounds are lower, and valid.
class CutBounds {
 public:
  CutBounds(const Instance& problem, SearchBudget budget);

  // The device of one unit, whatever else it holds: one minimum cut for each unit, those that could
  // pay most first, none for those that cannot raise the bound.
  LowerBound cut();
  // Two units, together or apart: a few minimum cuts for each pair of the `candidates` units whose
  // own cuts are largest.
  LowerBound pair(std::size_t candidates = 40);

  bool timed_out() const { return budget_.timed_out; }  // by the clock, not by work

 private:
  double least_load(std::span<const UnitId> in, std::span<const UnitId> out, bool on_cpu);
  double least_load_of(UnitId unit);
  double pair_load(UnitId a, UnitId b);
  void find_order();
  std::vector<UnitId> find_candidates(std::size_t count);

  const Instance* problem_;
  SearchBudget budget_;
  FlowScratch scratch_;
  std::optional<CutNetwork> network_;  // none where the budget does not suffice to build it
  std::vector<MaxFlow> flows_;         // by kind
  std::vector<double> alone_;  // by unit: what it pays where it sits alone, the least of all
  std::vector<UnitId> order_;  // units, by `alone_`, the largest first
  std::vector<double> known_;  // by unit: its own cut; negative while unknown
};

}  // namespace kerf::place
