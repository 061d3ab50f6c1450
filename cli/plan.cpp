// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/plan.h"

#include <fmt/format.h>

#include <memory>

#include "cli/assignment.h"
#include "cli/problem_options.h"
#include "cli/progress.h"
#include "cli/published.h"
#include "cli/transfer_times.h"
#include "cli/verbs.h"
#include "kerf/emit/report/table.h"

namespace kerf::cli {
namespace {

struct PlanOptions {
  ProblemOptions problem;
  std::string method{kDefaultMethod};
  std::string assignment;
  std::string transfer_times;
  std::string minimise = "stage_time";
  std::string out;
  bool json = false;
  std::string from;  // a published problem instead of a graph
  bool contiguous = false;
  bool serial = false;
};

int run_plan(const PlanOptions& options) {
  if (options.contiguous || options.serial) {
    throw Error(ErrorKind::invalid_argument,
                "[kerf.plan] --contiguous or --serial without --from; expected a published "
                "problem; for a graph use --method chain or ideals");
  }
  partition::Options search = options.problem.search;
  search.method.balance.minimise = place::parse_minimise(options.minimise);
  if (!options.assignment.empty()) load_assignment(options.assignment, search);
  ProblemOptions posed = options.problem;
  if (!options.transfer_times.empty()) {
    posed.settings.transfer_times = load_transfer_times(options.transfer_times);
  }
  const Problem problem = load_problem(posed, "plan");
  const auto outcome = [&] {
    const partition::Entry* method = partition::find_method(options.method);
    const bool searches = method != nullptr && method->searches;
    const Progress progress("planning", searches ? search.time_budget : 0);
    return plan(problem, options.method, search);
  }();
  if (!outcome) {
    fmt::print(stderr, "kerf: error: {}\n", outcome.reason().message(Wording::command_line));
    return kNo;
  }
  if (!options.out.empty()) save_plan(*outcome, options.out);
  fmt::print("{}", options.json ? print_plan(*outcome) : plan_table(*outcome, &problem.graph));
  return kOk;
}

int run_published(const PlanOptions& options, const CLI::App& verb) {
  const ProblemOptions& given = options.problem;
  if (!given.devices.empty() || !given.cluster.empty() || !given.profile.empty()) {
    throw Error(ErrorKind::invalid_argument,
                "[kerf.plan] --devices, --cluster or --profile together with --from; expected none "
                "of them: a published problem has its own devices and costs");
  }
  for (const char* option :
       {"--schedule", "--comm-model", "--assignment", "--saturate-host", "--work-limit",
        "--n-microbatches", "--batch", "--no-mixed", "--transfer-times", "--keep-last-stage"}) {
    if (verb.count(option) == 0) continue;
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format(
            "[kerf.plan] {} together with --from; a published problem does not use it; omit it",
            option));
  }
  place::LoadRequest request;
  if (verb.count("--method") > 0) request.method = options.method;
  request.objective = parse_objective(given.objective);
  request.contiguous = options.contiguous;
  request.serial = options.serial;
  request.options.time_budget = given.search.time_budget;
  request.options.threads = given.search.threads;
  request.options.seed = given.settings.seed;
  request.options.method = given.search.method;
  request.options.method.balance.minimise = place::parse_minimise(options.minimise);
  return plan_published(given.graph, request, options.json, options.out);
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<PlanOptions>();
  CLI::App* verb = app.add_subcommand("plan", "Cut a graph into stages and place them on devices");
  add_problem_options(*verb, options->problem);
  verb->add_option("--method", options->method, "planning method, see kerf --help")
      ->capture_default_str();
  verb->add_flag("--saturate-host", options->problem.search.saturate_host,
                 "fill idle devices with replicas of the plan");
  verb->add_option("--stages", options->problem.search.method.mixed_pipe.stages,
                   "for method mixed_pipe: how many stages to make; 0: the method chooses")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  verb->add_option("--minimise", options->minimise,
                   "for methods acyclic and multilevel: stage_time or edge_cut")
      ->capture_default_str();
  verb->add_option("--imbalance", options->problem.search.method.balance.imbalance,
                   "with --minimise edge_cut: how much a stage's time may exceed its share")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  verb->add_option("--assignment", options->assignment,
                   "for method aot: JSON of each node's partition and each partition's device");
  verb->add_option("--transfer-times", options->transfer_times,
                   "JSON of seconds that values of the graph take between two devices, by name, in "
                   "place of what links say");
  verb->add_flag("--keep-last-stage", options->problem.settings.keep_last_stage,
                 "with --recompute all or a list: what lies in the last stage is kept, as in "
                 "asynchronous pipelines, and planned so");
  verb->add_option("--out", options->out, "plan.json to write");
  verb->add_flag("--json", options->json, "print the plan as JSON and nothing else");
  CLI::Option_group* published =
      verb->add_option_group("published", "Problems that come with their devices and costs");
  published->add_option("--from", options->from, "format of the problem, in place of a graph")
      ->check(CLI::IsMember({"dnn-partitioning"}));
  published->add_flag("--contiguous", options->contiguous, "only contiguous splits");
  published->add_flag("--serial", options->serial,
                      "latency: run the pieces of a device one after the other");
  verb->callback([options, verb, &exit_code] {
    exit_code = options->from.empty() ? run_plan(*options) : run_published(*options, *verb);
  });
}

}  // namespace kerf::cli
