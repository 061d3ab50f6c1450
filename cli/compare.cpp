// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/compare.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>

#include "cli/problem_options.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "kerf/emit/report/comparison_table.h"

namespace kerf::cli {
namespace {

struct CompareOptions {
  ProblemOptions problem;
  std::string methods = "all";
  bool json = false;
};

int run_compare(const CompareOptions& options) {
  const Problem problem = load_problem(options.problem, "compare");
  const Comparison comparison = [&] {
    constexpr double kSearching = 4;  // methods that take the whole budget
    const Progress progress("comparing", options.problem.search.time_budget * kSearching);
    return compare(problem, parse_methods(options.methods), options.problem.search);
  }();
  bool any = false;
  for (const ComparedMethod& row : comparison.methods) {
    any = any || row.found;
  }
  if (options.json) {
    fmt::print("{}\n", comparison_json(comparison).dump(1));
  } else {
    fmt::print("{}", comparison_table(comparison));
  }
  return any ? kOk : kNo;
}

}  // namespace

void add_compare(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* verb = app.add_subcommand("compare", "Plan with several methods and compare the plans");
  add_problem_options(*verb, options->problem);
  verb->add_option("--methods", options->methods, "all, or comma-separated names")
      ->capture_default_str();
  verb->add_flag("--json", options->json, "print JSON and nothing else");
  verb->callback([options, &exit_code] { exit_code = run_compare(*options); });
}

}  // namespace kerf::cli
