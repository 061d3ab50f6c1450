// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <memory>

#include "cli/verbs.h"
#include "kerf/driver/predict_memory.h"
#include "kerf/emit/report/memory_table.h"
#include "kerf/graph/text.h"

namespace kerf::cli {
namespace {

struct MemoryOptions {
  std::string graph;
  std::string recompute = "as_traced";
  MemorySettings settings{.training = false};  // but for that one
};

void run_memory(const MemoryOptions& options) {
  const Graph graph = load_graph(options.graph);
  MemorySettings settings = options.settings;
  settings.recompute = parse_recompute(options.recompute);
  fmt::print("{}", memory_table(predict_memory(graph, settings)));
}

}  // namespace

void add_memory(CLI::App& app) {
  auto options = std::make_shared<MemoryOptions>();
  CLI::App* verb = app.add_subcommand("memory", "Predict the memory of a step on one device");
  verb->add_option("graph", options->graph, "model.graph")->required();
  verb->add_option("--device-kind", options->settings.device_kind, "a device kind")
      ->capture_default_str();
  verb->add_option("--batch", options->settings.batch, "batch size; default: the traced example's")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  verb->add_flag("--training", options->settings.training,
                 "a training step; default: an inference pass");
  verb->add_option("--optimizer", options->settings.optimizer,
                   fmt::format("{}", fmt::join(optimizer_names(), ", ")))
      ->capture_default_str();
  verb->add_option("--recompute", options->recompute,
                   "none, as_traced, all (blocks that repeat), or modules with commas between them")
      ->capture_default_str();
  verb->callback([options] { run_memory(*options); });
}

}  // namespace kerf::cli
