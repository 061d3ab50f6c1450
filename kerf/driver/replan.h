// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "kerf/base/outcome.h"
#include "kerf/plan/infeasible.h"
#include "kerf/plan/plan.h"

namespace kerf {

// The same stages on the same devices, replicas included, with another number of micro-batches or
// another batch, simulated, checked for memory and verified again. Without a profile (nullptr) the
// plan's own figures stand in: an estimate is made again, measured stage times are spread over
// their nodes, and a note says so. The batch stays the plan's; where it has fewer samples than
// there are to be micro-batches it is raised to their number, and a note says so. Throws
// Error(invalid_plan) when the plan is of another graph or not sound: it may come from a file; and
// Error(invalid_argument) for a profile that was made for another kind of device.
Outcome<Plan, Infeasible> replan(const Plan& plan, const Graph& graph, const Profile* profile,
                                 std::optional<int> n_microbatches,
                                 std::optional<std::int64_t> batch);

}  // namespace kerf
