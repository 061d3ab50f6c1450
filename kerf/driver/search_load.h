// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "kerf/partition/registry/registry.h"
#include "kerf/place/load_plan.h"
#include "kerf/place/portfolio/load_request.h"

namespace kerf {

// What the request's method finds, unverified: programs call plan (driver/plan_load.h). Throws
// Error(invalid_argument) for methods that need a graph or cannot minimise the objective.
std::optional<LoadPlan> search_load(const LoadProblem& problem, const place::LoadRequest& request);
std::optional<LoadPlan> search_load(const LoadProblem& problem, const place::LoadRequest& request,
                                    const partition::Entry& method);

}  // namespace kerf
