// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The methods for load problems, by name.
//   chain   the best split of one good order into intervals
//   ideals  the exact contiguous optimum
//   refine  any-split search
//   exact   branch and bound by minimum cuts, from what the others find
//   auto    all of these inside the time budget; stops when a bound is met
// and the families (place/portfolio/families.h). What they find nobody has verified: programs call
// kerf::plan (driver/plan_load.h), and tools/layers.toml keeps this header from the faces.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kerf/place/load_plan.h"
#include "kerf/place/portfolio/load_request.h"

namespace kerf::place {

std::vector<std::string> load_method_names();

// Nothing when no split fits the accelerators' memory, or none was found. Throws
// Error(invalid_argument): unknown method, or one that cannot minimise the objective.
std::optional<LoadPlan> plan_load(const LoadProblem& problem, const LoadRequest& request);

}  // namespace kerf::place
