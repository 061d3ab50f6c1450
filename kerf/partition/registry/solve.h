// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// From a problem to what a method makes of it, which nobody has verified: this room may not include
// the verifier. Programs call kerf::plan (driver/plan.h), and tools/layers.toml keeps this header
// from the faces.
#pragma once

#include <string_view>

#include "kerf/partition/registry/registry.h"

namespace kerf::partition {

// Checks the problem and the options and calls the method. Throws Error(invalid_argument) when they
// do not go together, or nobody knows the name.
Outcome<Plan, Infeasible> solve(const Problem& problem, const Entry& method,
                                const Options& options = {});
Outcome<Plan, Infeasible> solve(const Problem& problem, std::string_view method = kDefaultMethod,
                                const Options& options = {});

}  // namespace kerf::partition
