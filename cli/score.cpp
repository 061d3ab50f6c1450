// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cli/verbs.h"
#include "kerf/base/file.h"
#include "kerf/ingest/dnn_partitioning.h"

namespace kerf::cli {
namespace {

struct ScoreOptions {
  std::string problem;
  std::string from = "dnn-partitioning";
  std::string split;
};

std::string device_name(const LoadProblem& problem, std::size_t device) {
  return device == problem.cpu() ? "cpu" : fmt::format("accelerator {}", device);
}

// A plan says what it costs: another cost here means that it was made for another problem.
bool check_claim(const SplitClaim& claim, const std::vector<double>& costs) {
  constexpr double kRounding = 1e-9;
  for (const double cost : costs) {
    if (std::abs(cost - claim.value) <= kRounding * std::max(cost, claim.value)) return true;
  }
  fmt::print("not this problem's    the plan was made for '{}' and says {} {:.6f}\n", claim.problem,
             to_string(claim.objective), claim.value);
  return false;
}

int run_score(const ScoreOptions& options) {
  const LoadProblem problem = load_dnn_partitioning(options.problem);
  const std::string text = read_file(options.split);
  const auto device = parse_split(problem, text, options.split);
  const auto claim = parse_split_claim(text, options.split);
  const Loads loads = find_loads(problem, device);
  fmt::print("{:<16} {:>12} {:>12} {:>12}\n", "device", "compute", "transfers", "load");
  for (std::size_t d = 0; d < loads.compute.size(); ++d) {
    fmt::print("{:<16} {:>12.4f} {:>12.4f} {:>12.4f}{}\n", device_name(problem, d),
               loads.compute[d], loads.transfer[d], loads.compute[d] + loads.transfer[d],
               d != problem.cpu() && loads.bytes[d] > problem.memory ? "  over its memory" : "");
  }
  fmt::print("\nthroughput objective  {:.6f} per sample\n", loads.busiest);
  const double latency = find_latency(problem, device, false);
  const double serial = find_latency(problem, device, true);
  fmt::print(
      "latency objective     {:.6f} for one sample, {:.6f} with the pieces of a device in "
      "turn\n",
      latency, serial);
  fmt::print("contiguous            {}\n", is_contiguous(problem, device) ? "yes" : "no");
  const std::vector<std::string> faults = find_faults(problem, device);
  for (const std::string& fault : faults) fmt::print("not allowed           {}\n", fault);
  const bool for_latency = claim && claim->objective == Objective::latency;
  const bool as_claimed = !claim || check_claim(*claim, for_latency ? std::vector{latency, serial}
                                                                    : std::vector{loads.busiest});
  return loads.fits && faults.empty() && as_claimed ? kOk : kNo;
}

}  // namespace

void add_score(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ScoreOptions>();
  CLI::App* verb =
      app.add_subcommand("score", "Compute the cost of a split of a published problem");
  verb->add_option("problem", options->problem, "problem.json")->required();
  verb->add_option("--from", options->from, "its format")
      ->check(CLI::IsMember({"dnn-partitioning"}))
      ->capture_default_str();
  verb->add_option("--split", options->split, "split.json: an assignment, or the published output")
      ->required();
  verb->callback([options, &exit_code] { exit_code = run_score(*options); });
}

}  // namespace kerf::cli
