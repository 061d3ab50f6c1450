// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The reference of the planners' tests: an enumeration that goes through make_plan and nothing of
// theirs.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "kerf/partition/lower/units.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/raise/form_stages.h"

namespace kerf {

// The least objective of all ways to place the units; nothing when none fits.
inline std::optional<double> best_of_all(const Problem& problem) {
  const auto unit_of = partition::indivisible_units(problem.graph);
  const auto units = partition::collect_units(problem, unit_of);
  const auto order = partition::topological_order(units);
  const std::size_t devices = problem.cluster.num_devices();
  std::vector<DeviceId> device(units.size(), DeviceId{0});
  std::optional<double> best;
  for (bool more = true; more;) {
    for (const auto form : {partition::form_stages, partition::form_short_stages}) {
      auto stages = form(units, order, device);
      const Plan plan = make_plan(problem, stages.nodes, stages.devices, "all");
      if (find_overflow(plan)) continue;
      best = std::min(best.value_or(plan.objective_value()), plan.objective_value());
    }
    more = false;
    for (DeviceId& d : device) {
      if (d.index() + 1 < devices) {
        d = DeviceId{d.index() + 1};
        more = true;
        break;
      }
      d = DeviceId{0};
    }
  }
  return best;
}

}  // namespace kerf
