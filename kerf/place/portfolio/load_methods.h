// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Published problems, searched. What is found nobody has verified: programs call kerf::plan
// (driver/plan_load.h), and tools/layers.toml keeps this header from the faces.
#pragma once

#include <optional>

#include "kerf/place/load_plan.h"
#include "kerf/place/portfolio/load_request.h"
#include "kerf/place/portfolio/split_method.h"

namespace kerf::place {

// Nothing when no split fits the accelerators' memory, or none was found. For the objective
// latency the search is one of its own, whatever the method. Throws Error(invalid_argument) for
// requests that make no sense.
std::optional<LoadPlan> plan_load(const LoadProblem& problem, const LoadRequest& request,
                                  const SplitMethod& method);

}  // namespace kerf::place
