// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The independent verifier: re-derives from the graph everything a plan claims. It shares no code
// with any planner; memory comes from the one engine, which a brute-force test checks.
#pragma once

#include <string>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/plan/plan.h"
#include "kerf/profile/profile.h"

namespace kerf {

struct Violation {
  std::string rule;  // "coverage", "acyclic", "glue", "replicas", ... stable, for tests and tools
  std::string message;  // names nodes, stages, devices
};

// Throws Error(invalid_plan), one line that names the first few; nothing when there are none.
void refuse_violations(const std::vector<Violation>& violations);

// Empty: the plan is sound. Without a profile the stages' times are taken as given. Never throws on
// a bad plan.
std::vector<Violation> verify_plan(const Graph& graph, const Profile* profile, const Plan& plan);

// Throws Error(invalid_plan), one line that names the first violations. What comes from a file
// passes through here before it is run.
void check_plan(const Graph& graph, const Profile* profile, const Plan& plan);

}  // namespace kerf
