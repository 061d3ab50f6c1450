// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/plan.h"

#include <fmt/format.h>

#include <memory>

#include "cli/assignment.h"
#include "cli/cost_options.h"
#include "cli/published.h"
#include "cli/verbs.h"
#include "kerf/device/devices.h"
#include "kerf/emit/report/table.h"
#include "kerf/graph/text.h"
#include "kerf/partition/partition.h"
#include "kerf/profile/estimate.h"
#include "kerf/profile/speeds.h"
#include "kerf/verify/verify_plan.h"

namespace kerf::cli {
namespace {

struct Options {
  std::string graph;
  std::string profile;
  std::string devices;
  std::string cluster;
  std::string method{kDefaultMethod};
  std::string objective = "throughput";
  std::string comm_model = "link";
  std::string schedule = "fill_drain";
  int n_microbatches = 1;
  std::int64_t batch = 0;
  std::uint64_t seed = 0;
  partition::Options search;
  std::string assignment;
  std::string out;
  std::string from;  // a published problem instead of a graph
  PublishedOptions published;
};

Problem make_problem(const Options& options) {
  Problem problem;
  problem.graph = load_graph(options.graph);
  problem.cluster =
      options.cluster.empty() ? parse_devices(options.devices) : load_cluster(options.cluster);
  problem.objective = parse_objective(options.objective);
  problem.comm_model = options.comm_model;
  problem.schedule = options.schedule;
  problem.n_microbatches = options.n_microbatches;
  problem.batch = options.batch;
  problem.seed = options.seed;
  if (options.profile.empty()) {
    const std::string kind = profiled_kind(problem.cluster);
    problem.profile = estimate(problem.graph, device_kind(kind), problem.micro_batch());
    fmt::print(stderr, "kerf: no --profile: costs are estimated from shapes, for {}\n{}", kind,
               unknown_ops_text(problem.profile));
  } else {
    problem.profile = load_profile(options.profile, problem.graph);
  }
  problem.cluster = with_relative_speeds(problem.cluster, problem.graph, problem.profile);
  return problem;
}

int run(const Options& options) {
  if (options.devices.empty() && options.cluster.empty()) {
    throw Error(ErrorKind::invalid_argument,
                "[kerf.plan] no devices; expected --devices, such as \"cpu:0=2GiB,cpu:1=1GiB\", or "
                "--cluster with a cluster.json");
  }
  partition::Options search = options.search;
  if (!options.assignment.empty()) load_assignment(options.assignment, search);
  const Problem problem = make_problem(options);
  const auto outcome = plan(problem, options.method, search);
  if (!outcome) {
    fmt::print(stderr, "kerf: error: {}\n", outcome.reason().message());
    return kNo;
  }
  check_plan(problem.graph, &problem.profile, *outcome);
  if (!options.out.empty()) save_plan(*outcome, options.out);
  fmt::print("{}", plan_table(*outcome, &problem.graph));
  return kOk;
}

int run_published(const Options& options, bool method_given) {
  if (!options.devices.empty() || !options.cluster.empty() || !options.profile.empty()) {
    throw Error(ErrorKind::invalid_argument,
                "[kerf.plan] --devices, --cluster or --profile beside --from; expected neither: a "
                "published problem has its own devices and costs");
  }
  PublishedOptions published = options.published;
  published.problem = options.graph;
  published.method = method_given ? options.method : "auto";
  published.objective = options.objective;
  published.seed = options.seed;
  published.out = options.out;
  return plan_published(published);
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("plan", "Cut a graph into stages and place them on devices");
  verb->add_option("graph", options->graph, "model.graph")->required();
  verb->add_option("--profile", options->profile, "profile.json; without it costs are estimated");
  CLI::Option_group* where = verb->add_option_group("devices", "What to place the stages on");
  where->add_option("--devices", options->devices, "such as \"cpu:0=2GiB,cpu:1=1GiB\" or 4xh200");
  where->add_option("--cluster", options->cluster, "cluster.json: devices, speeds and links");
  where->require_option(0, 1);
  verb->add_option("--method", options->method, "how to search")->capture_default_str();
  verb->add_option("--objective", options->objective, "what to minimise")->capture_default_str();
  verb->add_option("--n-microbatches,--chunks", options->n_microbatches, "parts of a batch")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--batch", options->batch, "samples a step; the traced example's unless given")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  verb->add_option("--schedule", options->schedule)->capture_default_str();
  verb->add_option("--comm-model", options->comm_model, "how transfers are costed")
      ->capture_default_str();
  verb->add_option("--seed", options->seed)->capture_default_str();
  verb->add_option("--work-limit", options->search.work_limit,
                   "search steps; 0: the method's own limit")
      ->check(CLI::NonNegativeNumber);
  verb->add_flag("--saturate-host", options->search.saturate_host,
                 "fill idle devices with copies of the plan");
  verb->add_option("--assignment", options->assignment,
                   "for method aot: JSON of each node's partition and each partition's device");
  verb->add_option("--out", options->out, "plan.json to write");
  CLI::Option_group* published =
      verb->add_option_group("published", "Problems that come with their devices and costs");
  published->add_option("--from", options->from, "format of the problem, in place of a graph")
      ->check(CLI::IsMember({"dnn-partitioning"}));
  published->add_flag("--contiguous", options->published.contiguous, "only contiguous splits");
  published->add_flag("--serial", options->published.serial,
                      "latency: the pieces of a device one after the other");
  published->add_option("--time-budget", options->published.time_budget, "seconds of search")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  published
      ->add_option("--threads", options->published.threads, "the plan is the same on any number")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  published->add_flag("--json", options->published.json, "the plan as JSON on standard output");
  verb->callback([options, verb, &exit_code] {
    const bool method_given = verb->count("--method") > 0;
    exit_code = options->from.empty() ? run(*options) : run_published(*options, method_given);
  });
}

}  // namespace kerf::cli
