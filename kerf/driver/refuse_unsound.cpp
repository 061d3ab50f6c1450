// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/refuse_unsound.h"

#include <fmt/format.h>

#include "kerf/verify/verify_asked.h"
#include "kerf/verify/verify_load.h"
#include "kerf/verify/verify_plan.h"

namespace kerf {
namespace {

void refuse(const std::string& method, const std::vector<Violation>& violations) {
  if (violations.empty()) return;
  throw Error(ErrorKind::internal,
              fmt::format("[driver.plan] the plan of method '{}' breaks {}; expected a sound plan; "
                          "this is a bug in Kerf, please report it, and use another method",
                          method, list_violations(violations)));
}

}  // namespace

void refuse_unsound(const Problem& problem, const Plan& plan) {
  refuse(plan.method, verify_plan(problem.graph, &problem.profile, plan));
  refuse(plan.method, verify_asked(problem, plan));
}

void refuse_unsound(const LoadProblem& problem, const LoadPlan& plan,
                    const place::LoadRequest& request) {
  std::vector<Violation> violations = verify_load_plan(problem, plan, request.serial);
  if (request.contiguous && !plan.contiguous) {
    violations.push_back({"contiguous", "a contiguous split was requested, and this is not one"});
  }
  refuse(plan.method, violations);
}

}  // namespace kerf
