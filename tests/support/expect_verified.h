// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "kerf/plan/problem.h"
#include "kerf/verify/verify_plan.h"

namespace kerf {

// Fails the test with each rule that a plan breaks. `seed`: what made the problem.
inline void expect_verified(const Problem& problem, const Plan& plan, std::uint64_t seed = 0) {
  for (const Violation& violation : verify_plan(problem.graph, &problem.profile, plan)) {
    ADD_FAILURE() << "seed " << seed << ", " << plan.method << ": " << violation.rule << ": "
                  << violation.message;
  }
}

}  // namespace kerf
