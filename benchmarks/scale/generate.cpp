// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
//   kerf_generate transformer 100000 --out /tmp/problems
//
// writes /tmp/problems/transformer_100000.graph and .profile.json.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "benchmarks/scale/families.h"
#include "kerf/base/error.h"
#include "kerf/graph/text.h"

namespace {

struct Options {
  std::string family;
  std::size_t nodes = 0;
  std::string out = ".";
  std::uint64_t seed = 0;
  double noise = 0;
};

// A folder that is there gets files named after the problem; anything else is their prefix.
std::string prefix(const Options& options) {
  if (!std::filesystem::is_directory(options.out)) return options.out;
  const auto name = fmt::format("{}_{}", options.family, options.nodes);
  return (std::filesystem::path(options.out) / name).string();
}

void run(const Options& options) {
  const kerf::families::Model model =
      kerf::families::make(options.family, options.nodes, options.seed, options.noise);
  const std::string path = prefix(options);
  kerf::save_graph(model.graph, path + ".graph");
  kerf::save_profile(model.profile, model.graph, path + ".profile.json");
  fmt::print("{} nodes, {} values, {} in all: {}.graph, {}.profile.json\n", model.graph.num_nodes(),
             model.graph.num_values(), to_string(model.profile.total_forward()), path, path);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Writes a planning problem of a given family and size.", "kerf_generate");
  app.add_option("family", options.family,
                 fmt::format("{}", fmt::join(kerf::families::names(), ", ")))
      ->required();
  app.add_option("nodes", options.nodes, "about how many")->required();
  app.add_option("--out", options.out, "a folder, or the prefix of both files")
      ->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_option("--noise", options.noise,
                 "fraction by which costs of equal blocks may differ, up or down")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "kerf_generate: error: {}\n", error.what());
    return 2;
  }
  return 0;
}
