// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/verbs.h"
#include "kerf/graph/text.h"
#include "kerf/verify/verify_plan.h"

namespace kerf::cli {
namespace {

struct VerifyOptions {
  std::string plan;
  std::string graph;
  std::string profile;
};

int run_verify(const VerifyOptions& options) {
  const Graph graph = load_graph(options.graph);
  const Plan plan = load_plan(options.plan);
  std::optional<Profile> profile;
  if (!options.profile.empty()) profile = load_profile(options.profile, graph);
  const auto violations = verify_plan(graph, profile ? &*profile : nullptr, plan);
  if (violations.empty()) {
    fmt::print("{}: sound: {} stage(s) of graph '{}'{}\n", options.plan, plan.num_stages(),
               graph.name(), profile ? "" : "; times taken as given, no --profile");
    return kOk;
  }
  fmt::print(stderr, "kerf: error: {} is not sound: {} broken\n", options.plan,
             violations.size() == 1 ? "1 rule" : fmt::format("{} rules", violations.size()));
  for (const Violation& violation : violations) {
    fmt::print(stderr, "  {}: {}\n", violation.rule, violation.message);
  }
  return kNo;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* verb =
      app.add_subcommand("verify", "Derive everything a plan claims from its graph and compare");
  verb->add_option("plan", options->plan, "plan.json")->required();
  verb->add_option("--graph", options->graph, "model.graph")->required();
  verb->add_option("--profile", options->profile, "profile.json; checks the stages' times too");
  verb->callback([options, &exit_code] { exit_code = run_verify(*options); });
}

}  // namespace kerf::cli
