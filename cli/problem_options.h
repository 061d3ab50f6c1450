// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "kerf/partition/registry/registry.h"
#include "kerf/plan/problem.h"

namespace kerf::cli {

// What the verbs that plan a graph have in common.
struct ProblemOptions {
  std::string graph;
  std::string profile;
  std::string devices;
  std::string cluster;
  std::string objective = "throughput";
  std::string comm_model = "link";
  std::string schedule = "fill_drain";
  int n_microbatches = 1;
  std::int64_t batch = 0;
  std::uint64_t seed = 0;
  partition::Options search;
};

// `options` must live as long as the verb.
void add_problem_options(CLI::App& verb, ProblemOptions& options);

// Loads the files; costs are estimated, with a word on stderr, where there is no profile. Throws
// Error(invalid_argument) when no devices were given. `verb` is for messages.
Problem make_problem(const ProblemOptions& options, const std::string& verb);

}  // namespace kerf::cli
