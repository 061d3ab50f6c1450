// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/registry/compare_methods.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kerf/base/cpu_seconds.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/place/check_bound.h"

namespace kerf {
namespace {

void check_names(const std::vector<std::string>& methods) {
  const std::vector<std::string> known = comparable_methods();
  for (std::size_t i = 0; i < methods.size(); ++i) {
    if (std::find(known.begin(), known.end(), methods[i]) == known.end()) {
      throw Error(
          ErrorKind::invalid_argument,
          fmt::format("[partition.compare_methods] method '{}'; expected some of {}, or all",
                      methods[i], fmt::join(known, ", ")));
    }
    const auto here = methods.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(methods.begin(), here, methods[i]) == here) continue;
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[partition.compare_methods] method '{}' twice; expected each once",
                            methods[i]));
  }
}

// A method that is not here, or that has no plan of the kind asked for, is a row that says so.
bool is_only_this_method(const Error& error, const partition::Options& options) {
  return error.kind() == ErrorKind::missing_backend ||
         (error.kind() == ErrorKind::invalid_argument && !options.mixed);
}

// The method's plan under the problem's objective.
Outcome<Plan, Infeasible> plan_with(const Problem& problem, const std::string& method,
                                    const partition::Options& options) {
  const bool can =
      problem.objective == Objective::throughput || partition::find_method(method)->any_objective;
  if (can) return plan(problem, method, options);
  Problem own = problem;
  own.objective = Objective::throughput;
  auto outcome = plan(own, method, options);
  if (!outcome) return outcome;
  auto scored = replace_problem(*outcome, problem);
  if (scored) {
    scored->truncated = outcome->truncated;
    scored->timed_out = outcome->timed_out;
  }
  return scored;
}

}  // namespace

std::vector<std::string> comparable_methods() {
  std::vector<std::string> names;
  for (const partition::Entry& entry : partition::methods()) {
    if (entry.name != "aot") names.emplace_back(entry.name);
  }
  return names;
}

Comparison compare_methods(const Problem& problem, std::vector<std::string> methods,
                           const partition::Options& options) {
  check_names(methods);
  if (methods.empty()) methods = comparable_methods();
  check_problem(problem);
  Comparison comparison;
  comparison.objective = problem.objective;
  for (const std::string& method : methods) {
    ComparedMethod& row = comparison.methods.emplace_back();
    row.method = method;
    const double start = cpu_seconds();
    try {
      auto outcome = plan_with(problem, method, options);
      row.found = static_cast<bool>(outcome);
      if (outcome) {
        row.plan = std::move(*outcome);
      } else {
        row.reason = outcome.reason().message();
      }
    } catch (const Error& error) {
      if (!is_only_this_method(error, options)) throw;
      row.reason = error.what();
    }
    row.cpu_seconds = cpu_seconds() - start;
    if (!row.found) continue;
    const LowerBound& bound = row.plan.lower_bound;
    const bool first = comparison.bound.name.empty();
    if (first || bound.value > comparison.bound.value * (1 + 1e-9)) comparison.bound = bound;
  }
  for (ComparedMethod& row : comparison.methods) {
    if (!row.found) continue;
    place::check_bound(comparison.bound.name, comparison.bound.value, row.plan.objective_value());
    row.plan.lower_bound = comparison.bound;
  }
  return comparison;
}

}  // namespace kerf
