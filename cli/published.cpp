// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cli/progress.h"
#include "cli/verbs.h"
#include "kerf/base/file.h"
#include "kerf/ingest/dnn_partitioning.h"
#include "kerf/partition/registry/registry.h"
#include "kerf/place/portfolio/load_methods.h"
#include "kerf/verify/verify_load.h"

namespace kerf::cli {
namespace {

void print_plan_table(const LoadProblem& problem, const LoadPlan& plan) {
  const Loads loads = find_loads(problem, plan.device);
  fmt::print("{}: {} nodes on {} accelerators and {} CPU(s), method {}\n\n", problem.name,
             problem.nodes.size(), problem.num_accelerators, problem.num_cpus, plan.method);
  fmt::print("{:<16} {:>6} {:>12} {:>12} {:>12}\n", "device", "nodes", "compute", "transfers",
             "load");
  for (std::size_t d = 0; d < loads.compute.size(); ++d) {
    const auto nodes = std::count(plan.device.begin(), plan.device.end(), d);
    fmt::print("{:<16} {:>6} {:>12.4f} {:>12.4f} {:>12.4f}\n",
               d == problem.cpu() ? "cpu" : fmt::format("accelerator {}", d), nodes,
               loads.compute[d], loads.transfer[d], loads.compute[d] + loads.transfer[d]);
  }
  fmt::print("\n{:<12} {:.6f}\n", to_string(plan.objective), plan.value);
  fmt::print("{:<12} {:.6f} ({}), gap {:.3f} %\n{:<12} {}\n", "lower bound", plan.lower_bound,
             plan.bound_name, plan.gap() * 100, "", plan.bound_argument);
  fmt::print("{:<12} {}\n{:<12} {:.2f} s of cpu time{}\n", "contiguous",
             plan.contiguous ? "yes" : "no", "search", plan.cpu_seconds,
             plan.timed_out   ? "; stopped by the clock: another run may give another split"
             : plan.truncated ? "; stopped by its budget"
                              : "");
}

int list_bounds(const std::string& path) {
  const LoadProblem problem = load_dnn_partitioning(path);
  const std::vector<place::LoadBound> bounds = place::load_bounds(problem);
  const auto tightest = std::max_element(
      bounds.begin(), bounds.end(), [](const auto& a, const auto& b) { return a.value < b.value; });
  for (const place::LoadBound& bound : bounds) {
    fmt::print("{:<10} {:>14.6f} {} {}\n", bound.name, bound.value,
               &bound == &*tightest ? "<- tightest:" : "            ", bound.argument);
  }
  const place::LoadBound latency = place::latency_bound(problem);
  fmt::print("{:<10} {:>14.6f} (latency)    {}\n", latency.name, latency.value, latency.argument);
  return kOk;
}

// There is no split: proved so by the bounds, or not found.
std::string why_nothing(const LoadProblem& problem, const PublishedOptions& options) {
  double largest = 0;
  for (const place::LoadBound& bound : place::load_bounds(problem)) {
    largest = std::max(largest, bound.value);
  }
  if (std::isinf(largest)) {
    return fmt::format(
        "no split fits the memory of {:.6g} that each of {} accelerators has; raise "
        "maxSizePerFPGA, "
        "or add accelerators or a CPU",
        problem.memory, problem.num_accelerators);
  }
  const bool contiguous =
      options.contiguous || options.method == "ideals" || options.method == "chain";
  return fmt::format(
      "no {}split was found in {:.3g} s that fits the memory of {:.6g} of each accelerator and "
      "waits for itself nowhere, which does not prove that there is none; raise --time-budget or "
      "maxSizePerFPGA, or try --method auto",
      contiguous ? "contiguous " : "", options.time_budget, problem.memory);
}

}  // namespace

int plan_published(const PublishedOptions& options) {
  const LoadProblem problem = load_dnn_partitioning(options.problem);
  place::LoadRequest request;
  request.method = options.method;
  request.objective = parse_objective(options.objective);
  request.contiguous = options.contiguous;
  request.serial = options.serial;
  request.options.time_budget = options.time_budget;
  request.options.seed = options.seed;
  request.options.threads = options.threads;
  request.options.stages = options.stages;
  request.options.minimise = place::parse_minimise(options.minimise);
  request.options.imbalance = options.imbalance;
  const std::optional<LoadPlan> plan = [&] {
    const Progress progress("planning", options.time_budget);
    return place::plan_load(problem, request);
  }();
  if (!plan) {
    fmt::print(stderr, "kerf: error: [partition.{}] {}\n", options.method,
               why_nothing(problem, options));
    return kNo;
  }
  check_load_plan(problem, *plan, options.serial);
  if (!options.out.empty()) write_file(options.out, print_load_plan(problem, *plan));
  if (options.json) {
    fmt::print("{}", print_load_plan(problem, *plan));
  } else {
    print_plan_table(problem, *plan);
  }
  return kOk;
}

void add_bounds(CLI::App& app, int& exit_code) {
  auto path = std::make_shared<std::string>();
  auto from = std::make_shared<std::string>("dnn-partitioning");
  CLI::App* verb = app.add_subcommand("bounds", "Every lower bound of a published problem");
  verb->add_option("problem", *path, "problem.json")->required();
  verb->add_option("--from", *from, "its format")
      ->check(CLI::IsMember({"dnn-partitioning"}))
      ->capture_default_str();
  verb->callback([path, from, &exit_code] { exit_code = list_bounds(*path); });
}

}  // namespace kerf::cli
