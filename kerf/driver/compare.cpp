// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kerf/base/cpu_seconds.h"
#include "kerf/driver/refuse_unsound.h"
#include "kerf/partition/raise/finish.h"
#include "kerf/partition/registry/solve.h"
#include "kerf/place/lower_bound.h"

namespace kerf {
namespace {

void check_names(const std::vector<std::string>& methods) {
  const std::vector<std::string> known = partition::comparable_methods();
  if (methods.empty()) {
    throw Error(ErrorKind::invalid_argument,
                "[driver.compare] an empty list of methods; expected all, or at least one name");
  }
  for (std::size_t i = 0; i < methods.size(); ++i) {
    if (std::find(known.begin(), known.end(), methods[i]) == known.end()) {
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("[driver.compare] unknown method '{}'; expected some of {}, or all",
                              methods[i], fmt::join(known, ", ")));
    }
    const auto here = methods.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(methods.begin(), here, methods[i]) == here) continue;
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[driver.compare] method '{}' twice; expected each once", methods[i]));
  }
}

// A method that is not here, or that has no plan of the kind asked for, is a row that says so.
bool is_only_this_method(const Error& error, const Problem& problem,
                         const partition::Options& options) {
  const bool is_special = !options.mixed || problem.stages_per_device > 1;
  return error.kind() == ErrorKind::missing_backend ||
         (error.kind() == ErrorKind::invalid_argument && is_special);
}

// The method's plan under the problem's objective.
Outcome<Plan, Infeasible> solve_with(const Problem& problem, const partition::Entry& method,
                                     const partition::Options& options) {
  const bool can = problem.objective == Objective::throughput || method.any_objective;
  if (can) return partition::solve(problem, method, options);
  Problem own = problem;
  own.objective = Objective::throughput;
  auto outcome = partition::solve(own, method, options);
  if (!outcome) return outcome;
  auto scored = replace_problem(*outcome, problem);
  if (scored) {
    scored->truncated = outcome->truncated;
    scored->timed_out = outcome->timed_out;
  }
  return scored;
}

// What the clock stopped has another bound on another run, and the rows beside it would have
// another gap without saying so: its bound counts only where all rows were stopped.
LowerBound strongest_bound(const std::vector<ComparedMethod>& rows) {
  std::vector<LowerBound> counted;
  std::vector<LowerBound> all;
  for (const ComparedMethod& row : rows) {
    if (!row.found) continue;
    all.push_back(row.plan.lower_bound);
    if (!row.plan.timed_out) counted.push_back(row.plan.lower_bound);
  }
  if (all.empty()) return {};
  return tightest(counted.empty() ? all : counted);
}

}  // namespace

std::vector<std::string> parse_methods(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  std::vector<std::string> names;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    std::string_view name = text.substr(start, end - start);
    name.remove_prefix(std::min(name.find_first_not_of(kBlanks), name.size()));
    name = name.substr(0, name.find_last_not_of(kBlanks) + 1);
    names.emplace_back(name);
    start = end + 1;
  }
  return names;
}

Comparison compare(const Problem& problem, std::vector<std::string> methods,
                   const partition::Options& options) {
  if (methods == std::vector<std::string>{"all"}) methods = partition::comparable_methods();
  check_names(methods);
  std::vector<partition::Entry> entries;
  for (const std::string& name : methods) entries.push_back(partition::get_method(name));
  return compare(problem, entries, options);
}

Comparison compare(const Problem& problem, std::span<const partition::Entry> methods,
                   const partition::Options& options) {
  check_problem(problem);
  Comparison comparison;
  comparison.objective = problem.objective;
  for (const partition::Entry& method : methods) {
    ComparedMethod& row = comparison.methods.emplace_back();
    row.method = method.name;
    const double start = cpu_seconds();
    try {
      auto outcome = solve_with(problem, method, options);
      row.found = static_cast<bool>(outcome);
      if (outcome) {
        row.plan = std::move(*outcome);
      } else {
        row.reason = outcome.reason().message();
      }
    } catch (const Error& error) {
      if (!is_only_this_method(error, problem, options)) throw;
      row.reason = error.what();
    }
    row.cpu_seconds = cpu_seconds() - start;
  }
  comparison.bound = strongest_bound(comparison.methods);
  for (ComparedMethod& row : comparison.methods) {
    if (!row.found) continue;
    check_bound(comparison.bound, row.plan.objective_value());
    row.plan.lower_bound = comparison.bound;
    refuse_unsound(problem, row.plan);
  }
  return comparison;
}

}  // namespace kerf
