// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/load_plan.h"

#include <nlohmann/json.hpp>

#include "kerf/base/json.h"

namespace kerf {

double LoadPlan::gap() const {
  if (lower_bound <= 0) return value <= 0 ? 0 : 1;
  return (value - lower_bound) / lower_bound;
}

std::string print_load_plan(const LoadProblem& problem, const LoadPlan& plan) {
  Json json = format_header(kLoadPlanFormat, kLoadPlanVersion);
  json["problem"] = problem.name;
  json["method"] = plan.method;
  json["minimised"] = to_string(plan.objective);
  json["objective"] = plan.value;
  json["lower_bound"] = plan.lower_bound;
  json["bound"] = plan.bound_name;
  json["bound_argument"] = plan.bound_argument;
  const bool known = plan.lower_bound > 0 || plan.value <= 0;
  json["gap"] = known ? Json(plan.gap()) : Json(nullptr);
  json["contiguous"] = plan.contiguous;
  json["truncated"] = plan.truncated;
  json["timed_out"] = plan.timed_out;
  json["cpu_seconds"] = plan.cpu_seconds;
  json["seed"] = plan.seed;
  // Ids differ: keys are appended, where looking each up first would take quadratic time.
  Json::object_t entries;
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    const bool on_cpu = plan.device[n] == problem.cpu();
    entries.Json::object_t::Container::emplace_back(
        std::to_string(problem.nodes[n].id), on_cpu ? Json("cpu") : Json(plan.device[n].index()));
  }
  Json assignment(std::move(entries));
  json["assignment"] = std::move(assignment);
  return json.dump(1) + "\n";
}

}  // namespace kerf
