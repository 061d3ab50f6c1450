// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <memory>

#include "cli/verbs.h"
#include "kerf/device/kind.h"
#include "kerf/emit/report/memory_table.h"
#include "kerf/graph/text.h"
#include "kerf/plan/recompute.h"
#include "kerf/simulate/step_memory/step_memory.h"

namespace kerf::cli {
namespace {

struct MemoryOptions {
  std::string graph;
  std::string device_kind = "cuda";
  std::int64_t batch = 0;
  bool training = false;
  std::string optimizer = "adamw";
  std::vector<std::string> recompute{"as_traced"};
};

void run_memory(const MemoryOptions& options) {
  const Graph graph = load_graph(options.graph);
  StepRequest request;
  request.batch = options.batch;
  request.accelerator = !device_kind(options.device_kind).host;
  const Optimizer& steps = optimizer(options.optimizer);
  if (options.training) request.optimizer = &steps;
  request.regions = recompute_regions(graph, options.recompute);
  fmt::print("{}", memory_table(step_memory(graph, request)));
}

}  // namespace

void add_memory(CLI::App& app) {
  auto options = std::make_shared<MemoryOptions>();
  CLI::App* verb = app.add_subcommand("memory", "Predict the memory of a step on one device");
  verb->add_option("graph", options->graph, "model.graph")->required();
  verb->add_option("--device-kind", options->device_kind, "a device kind")->capture_default_str();
  verb->add_option("--batch", options->batch, "batch size; default: the traced example's")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  verb->add_flag("--training", options->training, "a training step; default: an inference pass");
  verb->add_option("--optimizer", options->optimizer,
                   fmt::format("{}", fmt::join(optimizer_names(), ", ")))
      ->capture_default_str();
  verb->add_option("--recompute", options->recompute,
                   "none, as_traced, all (blocks that repeat), or module paths")
      ->capture_default_str();
  verb->callback([options] { run_memory(*options); });
}

}  // namespace kerf::cli
