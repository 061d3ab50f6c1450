// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/estimate_costs.h"

#include <fmt/format.h>

#include <memory>

#include "cli/cost_options.h"
#include "cli/verbs.h"
#include "kerf/graph/text.h"

namespace kerf::cli {
namespace {

struct EstimateOptions {
  std::string graph;
  std::string device_kind = "cpu";
  std::int64_t batch = 0;
  bool training = false;
  std::string out;
};

void run_estimate(const EstimateOptions& options) {
  const Graph graph = load_graph(options.graph);
  const Profile profile =
      estimate_costs(graph, options.device_kind, options.batch, options.training);
  save_profile(profile, graph, options.out);
  double flops = 0;
  for (const NodeCost& node : profile.nodes) flops += node.flops + node.backward_flops;
  const std::string backward =
      profile.training ? fmt::format(", backward {}", to_string(profile.total_backward())) : "";
  fmt::print("{}: {} nodes, {:.3g} GFLOP, forward {}{} on {}{}\n", options.out, graph.num_nodes(),
             flops * 1e-9, to_string(profile.total_forward()), backward, profile.device_kind,
             profile.batch == 0 ? std::string() : fmt::format(", batch {}", profile.batch));
  fmt::print(stderr, "{}", unknown_ops_text(profile));
}

}  // namespace

void add_estimate(CLI::App& app) {
  auto options = std::make_shared<EstimateOptions>();
  CLI::App* verb = app.add_subcommand("estimate", "Estimate the cost of every node from shapes");
  verb->add_option("graph", options->graph, "model.graph")->required();
  verb->add_option("--device-kind", options->device_kind, "a device kind")->capture_default_str();
  verb->add_option("--batch", options->batch, "batch size; default: the traced example's")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  verb->add_flag("--training", options->training, "backward times too, of a train-mode trace");
  verb->add_option("--out", options->out, "profile.json to write")->required();
  verb->callback([options] { run_estimate(*options); });
}

}  // namespace kerf::cli
