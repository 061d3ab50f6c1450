// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/problem_options.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "cli/cost_options.h"
#include "kerf/device/devices.h"
#include "kerf/graph/text.h"

namespace kerf::cli {
namespace {

// The parser makes the largest number there is of any that is larger: that one is out of range too.
constexpr std::int64_t kMost = std::int64_t{1} << 62;

}  // namespace

void add_problem_options(CLI::App& verb, ProblemOptions& options) {
  verb.add_option("graph", options.graph, "model.graph")->required();
  verb.add_option("--profile", options.profile, "profile.json; without it costs are estimated");
  CLI::Option_group* where = verb.add_option_group("devices", "What to place the stages on");
  where->add_option("--devices", options.devices, "such as \"cpu:0=2GiB,cpu:1=1GiB\" or 4xh200");
  where->add_option("--cluster", options.cluster, "cluster.json: devices, speeds and links");
  where->require_option(0, 1);
  verb.add_option("--objective", options.objective,
                  "what to minimise: throughput, latency, step or memory")
      ->capture_default_str();
  verb.add_option("--n-microbatches,--chunks", options.settings.n_microbatches,
                  "micro-batches per batch")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb.add_option("--batch", options.settings.batch,
                  "samples per step; default: the traced example's")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  verb.add_option("--schedule", options.settings.schedule,
                  "order in which stages take micro-batches")
      ->capture_default_str();
  verb.add_option("--stages-per-device", options.settings.stages_per_device,
                  "stages on each device, looped, for the methods chain and auto")
      ->check(CLI::Range(1, 1 << 10))
      ->capture_default_str();
  verb.add_flag("--training", options.settings.training,
                "plan a training step: backward, gradients, optimizer");
  verb.add_option("--optimizer", options.settings.optimizer, "training: the optimizer")
      ->capture_default_str();
  verb.add_option("--recompute", options.recompute,
                  "training: what runs forward again: auto, none, all, as_traced, or modules with "
                  "commas between them")
      ->capture_default_str();
  verb.add_option("--comm-model", options.comm_model,
                  "how transfers are costed: link, host_staged or overlapped")
      ->capture_default_str();
  verb.add_option("--seed", options.settings.seed, "seed of the search")
      ->check(CLI::Range(std::int64_t{0}, kMost))
      ->capture_default_str();
  verb.add_option("--time-budget", options.search.time_budget, "search budget in seconds")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  verb.add_option("--threads", options.search.threads,
                  "threads to search with; the plan does not depend on it")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  verb.add_flag("!--no-mixed", options.search.mixed,
                "at most one stage per device, for every method");
  verb.add_option("--work-limit", options.search.work_limit,
                  "limit on search steps; 0: the method's own")
      ->check(CLI::Range(std::int64_t{0}, kMost));
}

Problem load_problem(const ProblemOptions& options, const std::string& verb) {
  if (options.devices.empty() && options.cluster.empty()) {
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[kerf.{}] no devices; expected --devices, such as "
                            "\"cpu:0=2GiB,cpu:1=1GiB\", or --cluster with a cluster.json",
                            verb));
  }
  Graph graph = load_graph(options.graph);
  Cluster cluster =
      options.cluster.empty() ? parse_devices(options.devices) : load_cluster(options.cluster);
  ProblemSettings settings = options.settings;
  settings.objective = parse_objective(options.objective);
  settings.comm_model = parse_comm_model(options.comm_model);
  settings.recompute = parse_recompute(options.recompute);
  std::optional<Profile> profile;
  if (!options.profile.empty()) profile = load_profile(options.profile, graph);
  Problem problem =
      make_problem(std::move(graph), std::move(cluster), std::move(profile), settings);
  if (options.profile.empty()) {
    fmt::print(stderr, "kerf: no --profile: costs are estimated from shapes, for {}\n{}",
               problem.profile.device_kind, unknown_ops_text(problem.profile));
  }
  return problem;
}

}  // namespace kerf::cli
