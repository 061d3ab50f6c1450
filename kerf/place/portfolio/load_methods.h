// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The methods for load problems, by name.
//   chain   the best split of one good order into intervals
//   ideals  the exact contiguous optimum
//   refine  any-split search
//   exact   branch and bound by minimum cuts, from what the others find
//   auto    all of these inside the time budget; stops when a bound is met
// and the families (place/portfolio/families.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/place/load_plan.h"
#include "kerf/place/load_search.h"

namespace kerf::place {

struct LoadRequest {
  std::string method = "auto";
  Objective objective = Objective::throughput;
  bool contiguous = false;  // only splits that are
  bool serial = false;      // latency: the pieces of a device one after the other
  LoadOptions options;
};

std::vector<std::string> load_method_names();

// Nothing when no split fits the accelerators' memory, or none was found. Throws
// Error(invalid_argument): unknown method, or one that cannot minimise the objective.
std::optional<LoadPlan> plan_load(const LoadProblem& problem, const LoadRequest& request);

// Every lower bound on the max load of any split.
std::vector<LoadBound> load_bounds(const LoadProblem& problem);
// No split has a smaller latency: the longest path, each node where it is fastest.
LoadBound latency_bound(const LoadProblem& problem);

}  // namespace kerf::place
