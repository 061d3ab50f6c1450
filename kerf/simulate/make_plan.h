// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// From stages and devices to a plan with its figures: the one way a Plan is made. Partitioners use
// partition/raise/finish.h, which adds the lower bound.
#pragma once

#include <string>
#include <vector>

#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"

namespace kerf {

// Stages placed by hand: times, cuts, loads, memory, simulated step. Empty stages are dropped, the
// others are renumbered topologically (by first node where there is a choice). Memory limits are
// recorded, not enforced: see find_overflow in partition/raise/finish.h. Trusts the problem:
// whoever poses it has called check_problem, once for all the plans that are made of it. Throws
// Error(invalid_plan) when nodes are missing or doubled, a device does not exist, or stages wait
// for each other.
Plan make_plan(const Problem& problem, std::vector<std::vector<NodeId>> stages,
               std::vector<DeviceId> devices, std::string method);

// The plan with these replicas in place of its own: memory counts them (limits are recorded, not
// enforced), and a note says so when a copy has devices of other speeds. Throws Error(invalid_plan)
// when they are not what Plan says of them.
Plan with_replicas(const Problem& problem, Plan plan, std::vector<std::vector<DeviceId>> replicas);

// What make_plan places, simulates and counts: nodes, and actions of the schedule. Its time is in
// proportion to it.
std::int64_t plan_size(const Problem& problem, std::size_t num_stages);

}  // namespace kerf
