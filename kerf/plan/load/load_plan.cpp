// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/load/load_plan.h"

#include "kerf/base/json.h"

namespace kerf {

double LoadPlan::gap() const {
  if (lower_bound <= 0) return value <= 0 ? 0 : 1;
  return (value - lower_bound) / lower_bound;
}

std::string print_load_plan(const LoadProblem& problem, const LoadPlan& plan) {
  Json json = format_header("kerf-load-plan", {1, 0});
  json["problem"] = problem.name;
  json["method"] = plan.method;
  json["minimised"] = to_string(plan.objective);
  json["objective"] = plan.value;
  json["lower_bound"] = plan.lower_bound;
  json["bound"] = plan.bound_name;
  json["bound_argument"] = plan.bound_argument;
  json["gap"] = plan.gap();
  json["contiguous"] = plan.contiguous;
  json["truncated"] = plan.truncated;
  json["cpu_seconds"] = plan.cpu_seconds;
  json["seed"] = plan.seed;
  Json assignment = Json::object();
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    Json& device = assignment[std::to_string(problem.nodes[n].id)];
    if (plan.device[n] == problem.cpu()) {
      device = "cpu";
    } else {
      device = plan.device[n];
    }
  }
  json["assignment"] = std::move(assignment);
  return json.dump(1) + "\n";
}

}  // namespace kerf
