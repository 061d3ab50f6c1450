// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/simulate.h"

#include <fmt/format.h>

#include <memory>

#include "cli/verbs.h"
#include "kerf/base/file.h"
#include "kerf/emit/report/gantt.h"
#include "kerf/emit/report/trace.h"

namespace kerf::cli {
namespace {

struct SimulateOptions {
  std::string plan;
  int n_microbatches = 0;
  std::string out;
  std::string trace;
};

void run_simulate(const SimulateOptions& options) {
  const Plan plan = load_plan(options.plan);
  const Timeline timeline =
      options.n_microbatches > 0 ? simulate(plan, options.n_microbatches) : simulate(plan);
  if (!options.out.empty()) save_timeline(timeline, options.out);
  if (!options.trace.empty()) write_file(options.trace, chrome_trace(timeline));
  fmt::print("{}", draw_timeline(timeline));
}

}  // namespace

void add_simulate(CLI::App& app) {
  auto options = std::make_shared<SimulateOptions>();
  CLI::App* verb = app.add_subcommand("simulate", "Predict one step of a plan, event by event");
  verb->add_option("plan", options->plan, "plan.json")->required();
  verb->add_option("--n-microbatches,--chunks", options->n_microbatches,
                   "another number of micro-batches of the same size")
      ->check(CLI::Range(1, 1 << 20));
  verb->add_option("--out", options->out, "timeline.json to write");
  verb->add_option("--trace", options->trace,
                   "trace to write, for chrome://tracing or ui.perfetto.dev");
  verb->callback([options] { run_simulate(*options); });
}

}  // namespace kerf::cli
