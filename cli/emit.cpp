// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/verbs.h"
#include "kerf/base/file.h"
#include "kerf/emit/codegen/emit_stages.h"
#include "kerf/graph/text.h"
#include "kerf/verify/verify_plan.h"

namespace kerf::cli {
namespace {

struct EmitArguments {
  std::string plan;
  std::string graph;
  std::string eval_graph;
  std::string out;
  bool force = false;
  EmitOptions stages;
};

void run_emit(const EmitArguments& options) {
  check_writable(options.out, options.force);  // before the work
  const Graph graph = load_graph(options.graph);
  const Plan plan = load_plan(options.plan);
  check_plan(graph, nullptr, plan);
  std::optional<Graph> eval;
  if (!options.eval_graph.empty()) eval = load_graph(options.eval_graph);
  write_file(options.out, emit_stages(graph, plan, eval ? &*eval : nullptr, options.stages));
  fmt::print("{}: {} stage{} of {}\n", options.out, plan.num_stages(),
             plan.num_stages() == 1 ? "" : "s", graph.name());
}

}  // namespace

void add_emit(CLI::App& app) {
  auto options = std::make_shared<EmitArguments>();
  CLI::App* verb = app.add_subcommand("emit", "Write a plan's stages as Python code");
  verb->add_option("plan", options->plan, "plan.json")->required();
  verb->add_option("--graph", options->graph, "model.graph")->required();
  verb->add_option("--eval-graph", options->eval_graph,
                   "the same call traced in eval mode, where --graph is of train mode: the stages "
                   "have both modes");
  verb->add_option("--out", options->out, "stages.py to write")->required();
  verb->add_flag("--relay", options->stages.relay,
                 "a tensor that several later stages use goes from each of them to the next");
  verb->add_flag("!--no-explicit-del", options->stages.explicit_del,
                 "write no `del` where a tensor is used for the last time");
  verb->add_flag("--force", options->force, "overwrite the file if there is one");
  verb->callback([options] { run_emit(*options); });
}

}  // namespace kerf::cli
