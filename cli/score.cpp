// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "cli/verbs.h"
#include "kerf/base/file.h"
#include "kerf/ingest/dnn_partitioning.h"

namespace kerf::cli {
namespace {

struct Options {
  std::string problem;
  std::string from = "dnn-partitioning";
  std::string split;
};

std::string device_name(const LoadProblem& problem, std::size_t device) {
  return device == problem.cpu() ? "cpu" : fmt::format("accelerator {}", device);
}

int run(const Options& options) {
  const LoadProblem problem = load_dnn_partitioning(options.problem);
  const auto device = parse_split(problem, read_file(options.split), options.split);
  const Loads loads = find_loads(problem, device);
  fmt::print("{:<16} {:>12} {:>12} {:>12}\n", "device", "compute", "transfers", "load");
  for (std::size_t d = 0; d < loads.compute.size(); ++d) {
    fmt::print("{:<16} {:>12.4f} {:>12.4f} {:>12.4f}{}\n", device_name(problem, d),
               loads.compute[d], loads.transfer[d], loads.compute[d] + loads.transfer[d],
               d != problem.cpu() && loads.bytes[d] > problem.memory ? "  over its memory" : "");
  }
  fmt::print("\nthroughput objective  {:.6f} per sample\n", loads.busiest);
  fmt::print(
      "latency objective     {:.6f} for one sample, {:.6f} with the pieces of a device in "
      "turn\n",
      find_latency(problem, device, false), find_latency(problem, device, true));
  fmt::print("contiguous            {}\n", is_contiguous(problem, device) ? "yes" : "no");
  const std::vector<std::string> faults = find_faults(problem, device);
  for (const std::string& fault : faults) fmt::print("not allowed           {}\n", fault);
  return loads.fits && faults.empty() ? kOk : kNo;
}

}  // namespace

void add_score(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* verb =
      app.add_subcommand("score", "Compute the cost of a split of a published problem");
  verb->add_option("problem", options->problem, "problem.json")->required();
  verb->add_option("--from", options->from, "its format")
      ->check(CLI::IsMember({"dnn-partitioning"}))
      ->capture_default_str();
  verb->add_option("--split", options->split, "split.json: an assignment, or the published output")
      ->required();
  verb->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace kerf::cli
