// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "cli/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/progress.h"
#include "cli/verbs.h"
#include "kerf/base/file.h"
#include "kerf/driver/plan_load.h"
#include "kerf/ingest/dnn_partitioning.h"
#include "kerf/place/bound/published_bounds.h"

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
  const std::vector<LowerBound> bounds = place::load_bounds(problem);
  const std::string best = tightest(bounds).name;
  for (const LowerBound& bound : bounds) {
    fmt::print("{:<10} {:>14.6f} {} {}\n", bound.name, bound.value,
               bound.name == best ? "<- tightest:" : "            ", bound.argument);
  }
  const LowerBound latency = place::latency_bound(problem);
  fmt::print("{:<10} {:>14.6f} (latency)    {}\n", latency.name, latency.value, latency.argument);
  return kOk;
}

}  // namespace

int plan_published(const std::string& path, const place::LoadRequest& request, bool json,
                   const std::string& out) {
  const LoadProblem problem = load_dnn_partitioning(path);
  const auto outcome = [&] {
    const Progress progress("planning", request.options.time_budget);
    return plan(problem, request);
  }();
  if (!outcome) {
    fmt::print(stderr, "kerf: error: {}\n", outcome.reason().message);
    return kNo;
  }
  if (!out.empty()) write_file(out, print_load_plan(problem, *outcome));
  if (json) {
    fmt::print("{}", print_load_plan(problem, *outcome));
  } else {
    print_plan_table(problem, *outcome);
  }
  return kOk;
}

void add_bounds(CLI::App& app, int& exit_code) {
  auto path = std::make_shared<std::string>();
  auto from = std::make_shared<std::string>("dnn-partitioning");
  CLI::App* verb = app.add_subcommand("bounds", "Print every lower bound of a published problem");
  verb->add_option("problem", *path, "problem.json")->required();
  verb->add_option("--from", *from, "its format")
      ->check(CLI::IsMember({"dnn-partitioning"}))
      ->capture_default_str();
  verb->callback([path, from, &exit_code] { exit_code = list_bounds(*path); });
}

}  // namespace kerf::cli
