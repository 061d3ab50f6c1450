// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/plan/plan.h"

namespace kerf {

// The plan for people: a row a stage, a row a device, then what is predicted, how far the lower
// bound is, which profile was used, and the notes. Ends with a newline; wide as its content.
// With the plan's graph each stage's row names the modules it runs (emit/report/scopes.h).
std::string plan_table(const Plan& plan, const Graph* graph = nullptr);

}  // namespace kerf
