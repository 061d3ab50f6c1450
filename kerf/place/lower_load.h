// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A LoadProblem as searches see it: its colour classes are the units.
//
//   LoweredLoad lowered = lower_load(problem);
//   LoadAnswer answer = refine(lowered.instance, {.time_budget = 1, .seed = 7}, {});
//   std::vector<SlotId> device = lowered.to_nodes(answer.device);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/base/rows.h"
#include "kerf/place/instance.h"
#include "kerf/place/load_problem.h"

namespace kerf::place {

struct LoweredLoad {
  Instance instance;
  std::vector<UnitId> unit_of;          // by node
  RowsOf<UnitId, std::uint32_t> nodes;  // by unit, ascending

  // From device[unit] to device[node].
  std::vector<SlotId> to_nodes(std::span<const SlotId> device) const;
};

// Units are numbered by their first nodes, all CPUs are one. Forward edges order the units. A unit
// of backward nodes alone stands where its edges to other backward nodes, turned round, put it.
LoweredLoad lower_load(const LoadProblem& problem);
// Where nodes do not matter.
inline Instance to_instance(const LoadProblem& problem) { return lower_load(problem).instance; }

}  // namespace kerf::place
