// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <memory>
#include <optional>
#include <vector>

#include "cli/verbs.h"
#include "kerf/base/file.h"
#include "kerf/emit/report/analysis.h"
#include "kerf/emit/report/compare.h"
#include "kerf/emit/report/gantt.h"
#include "kerf/emit/report/report_json.h"
#include "kerf/emit/report/table.h"
#include "kerf/emit/report/trace.h"
#include "kerf/graph/text.h"
#include "kerf/simulate/simulate.h"
#include "kerf/verify/verify_plan.h"

namespace kerf::cli {
namespace {

struct ReportOptions {
  std::string plan;
  std::string graph;
  bool json = false;
  bool analysis = false;
  std::string timeline;
  std::string trace;
};

void print_analysis(const Plan& plan, const Graph* graph, const ReportOptions& options) {
  std::optional<Timeline> measured;
  if (!options.timeline.empty()) measured = load_timeline(options.timeline);
  const Analysis analysis = analyse(plan, graph, measured ? &*measured : nullptr);
  if (options.json) {
    fmt::print("{}\n", analysis_json(plan, analysis).dump(1));
  } else {
    fmt::print("{}", analysis_table(plan, analysis));
  }
}

void run_report(const ReportOptions& options) {
  const Plan plan = load_plan(options.plan);
  std::optional<Graph> graph;
  if (!options.graph.empty()) graph = load_graph(options.graph);
  if (graph) check_plan(*graph, nullptr, plan);
  if (options.analysis) return print_analysis(plan, graph ? &*graph : nullptr, options);
  std::vector<Timeline> timelines{simulate(plan)};
  if (!options.timeline.empty()) timelines.push_back(load_timeline(options.timeline));
  const std::string comparison =
      timelines.size() == 2 ? "\n" + compare_timelines(timelines[0], timelines[1]) : "";
  if (!options.trace.empty()) write_file(options.trace, chrome_trace(timelines));
  if (options.json) {
    fmt::print("{}\n", report_json(plan).dump(1));
    return;
  }
  fmt::print("{}", plan_table(plan, graph ? &*graph : nullptr));
  for (const Timeline& timeline : timelines) fmt::print("\n{}", draw_timeline(timeline));
  fmt::print("{}", comparison);
}

}  // namespace

void add_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* verb = app.add_subcommand("report", "Print a plan as a table or as JSON");
  verb->add_option("plan", options->plan, "plan.json")->required();
  verb->add_option("--graph", options->graph,
                   "model.graph; names the modules of each stage, and the plan is verified");
  verb->add_flag("--json", options->json, "print the figures as JSON instead");
  verb->add_flag("--analysis", options->analysis,
                 "print instead what stages and devices do in one micro-batch, with and without "
                 "transfers, and what the split gains; with --timeline as measured");
  verb->add_option("--timeline", options->timeline,
                   "timeline.json of a run, drawn and compared with the prediction");
  verb->add_option("--trace", options->trace,
                   "trace to write, for chrome://tracing or ui.perfetto.dev");
  verb->callback([options] { run_report(*options); });
}

}  // namespace kerf::cli
