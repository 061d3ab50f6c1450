// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// From stages and devices to a plan with all its figures: the one way every partitioner, test and
// face makes a Plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kerf/base/outcome.h"
#include "kerf/plan/infeasible.h"
#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"

namespace kerf {

// Stages placed by hand: times, cuts, loads, memory, simulated step, lower bound. Empty stages are
// dropped, stages are renumbered topologically. Memory limits are recorded, not enforced: see
// find_overflow. Throws Error(invalid_plan) when nodes are missing or doubled or the stage graph
// has a cycle.
Plan make_plan(const Problem& problem, std::vector<std::vector<NodeId>> stages,
               std::vector<DeviceId> devices, std::string method);

// The device that exceeds its limit by most, if any does.
std::optional<Infeasible> find_overflow(const Plan& plan);

// The same stages on the same devices under another problem (micro-batches, batch, limits,
// profile).
Outcome<Plan, Infeasible> replace_problem(const Plan& plan, const Problem& problem);

}  // namespace kerf
