// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The last step of every partitioner, and the ways around one: plans from stages placed by hand.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kerf/base/outcome.h"
#include "kerf/plan/infeasible.h"
#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"
#include "kerf/simulate/make_plan.h"

namespace kerf {

// make_plan, with the best lower bound; Infeasible when a device's memory is exceeded.
Outcome<Plan, Infeasible> finish_plan(const Problem& problem,
                                      std::vector<std::vector<NodeId>> stages,
                                      std::vector<DeviceId> devices, std::string method);
// The same for whoever makes many plans of a problem, and has looked for its bound once.
Outcome<Plan, Infeasible> finish_plan(const Problem& problem,
                                      std::vector<std::vector<NodeId>> stages,
                                      std::vector<DeviceId> devices, std::string method,
                                      const LowerBound& bound);

// The device that exceeds its limit by most, if any does.
std::optional<Infeasible> find_overflow(const Plan& plan);

// Whether a device has several stages.
bool has_mixed_stages(const Plan& plan);

// Keeps the reason that is least short of memory; of equals the first.
void keep_closest(std::optional<Infeasible>& closest, const Infeasible& reason);

// The same stages on the same devices, replicas included, under another problem (micro-batches,
// batch, limits, profile): re-simulated and checked against memory again.
Outcome<Plan, Infeasible> replace_problem(const Plan& plan, const Problem& problem);

}  // namespace kerf
