// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The way from a problem to a plan that a program takes. Every plan has been verified; one that is
// not sound is never returned (driver/refuse_unsound.h).
#pragma once

#include <string_view>
#include <vector>

#include "kerf/partition/registry/registry.h"

namespace kerf {

// Checks the problem and the options, calls the method and verifies what it made. Throws
// Error(invalid_argument) for a name that nobody knows, which lists those that are known, and for
// options that do not go together; Error(internal) when the plan is not sound.
//
//   const Problem problem = make_problem(load_graph("model.graph"), parse_devices("4xh100"));
//   const auto outcome = plan(problem, "auto");
//   if (outcome) save_plan(*outcome, "plan.json"); else puts(outcome.reason().message().c_str());
Outcome<Plan, Infeasible> plan(const Problem& problem, std::string_view method = kDefaultMethod,
                               const partition::Options& options = {});
// With a method of one's own, which is believed no more than the others.
Outcome<Plan, Infeasible> plan(const Problem& problem, const partition::Entry& method,
                               const partition::Options& options = {});

// Stages and devices chosen by hand, with the best lower bound; Infeasible when they exceed a
// memory. Throws Error(invalid_plan) when they make no plan of this graph.
Outcome<Plan, Infeasible> place_stages(const Problem& problem,
                                       std::vector<std::vector<NodeId>> stages,
                                       std::vector<DeviceId> devices);

}  // namespace kerf
