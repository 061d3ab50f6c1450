// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The verifier of splits of published problems: re-derives what a split claims, with code of its
// own. Slow is fine.
#pragma once

#include <vector>

#include "kerf/place/load_plan.h"
#include "kerf/verify/violation.h"

namespace kerf {

// Empty: the split is sound. `serial` is the request's, for the objective latency.
std::vector<Violation> verify_load_plan(const LoadProblem& problem, const LoadPlan& plan,
                                        bool serial);

// Throws Error(invalid_plan), one line that names the first violations.
void check_load_plan(const LoadProblem& problem, const LoadPlan& plan, bool serial);

}  // namespace kerf
