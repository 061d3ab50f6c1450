// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The independent verifier: derives from the graph, the profile and the cluster everything that a
// plan claims, with code of its own. It shares none with the planners, nor with the evaluator, the
// simulator and the memory engine that they ask.
#pragma once

#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/plan/plan.h"
#include "kerf/profile/profile.h"
#include "kerf/verify/violation.h"

namespace kerf {

// Empty: the plan is sound. Without a profile the stages' times are taken as given. Never throws on
// a bad plan; Error(invalid_argument) where a step is too long to be followed, and for a training
// plan with a profile that has no backward times.
std::vector<Violation> verify_plan(const Graph& graph, const Profile* profile, const Plan& plan);

// Throws Error(invalid_plan), one line that names the first violations. What comes from a file
// passes through here before it is run.
void check_plan(const Graph& graph, const Profile* profile, const Plan& plan);

}  // namespace kerf
