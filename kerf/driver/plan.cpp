// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/plan.h"

#include <utility>

#include "kerf/driver/refuse_unsound.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/verify/verify_plan.h"

namespace kerf {

Outcome<Plan, Infeasible> plan(const Problem& problem, const partition::Entry& method,
                               const partition::Options& options) {
  auto outcome = partition::solve(problem, method, options);
  if (outcome) refuse_unsound(problem, *outcome);
  return outcome;
}

Outcome<Plan, Infeasible> plan(const Problem& problem, std::string_view method,
                               const partition::Options& options) {
  return plan(problem, partition::get_method(method), options);
}

Outcome<Plan, Infeasible> place_stages(const Problem& problem,
                                       std::vector<std::vector<NodeId>> stages,
                                       std::vector<DeviceId> devices) {
  check_problem(problem);
  auto outcome = finish_plan(problem, std::move(stages), std::move(devices), "given");
  // Whoever chose the stages is to blame.
  if (outcome) check_plan(problem.graph, &problem.profile, *outcome);
  return outcome;
}

}  // namespace kerf
