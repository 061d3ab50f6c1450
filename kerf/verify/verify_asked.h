// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"
#include "kerf/verify/violation.h"

namespace kerf {

// What the problem asks for and a plan alone does not show: transfers take the times that were
// given, and a last stage that is to be kept runs nothing again but blocks that its border cuts.
// Empty: they hold. For plans that verify_plan finds sound.
std::vector<Violation> verify_asked(const Problem& problem, const Plan& plan);

}  // namespace kerf
