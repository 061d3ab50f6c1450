// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "kerf/driver/make_problem.h"
#include "kerf/partition/method.h"

namespace kerf::cli {

// What the verbs that plan a graph have in common.
struct ProblemOptions {
  std::string graph;
  std::string profile;
  std::string devices;
  std::string cluster;
  std::string objective = "throughput";
  std::string comm_model = "link";
  std::string recompute = "auto";
  ProblemSettings settings;  // but for those two
  partition::Options search;
};

// `options` must live as long as the verb.
void add_problem_options(CLI::App& verb, ProblemOptions& options);

// Loads the files; a word on stderr says so where costs are estimated for want of a profile. Throws
// Error(invalid_argument) when no devices were given. `verb` is for messages.
Problem load_problem(const ProblemOptions& options, const std::string& verb);

}  // namespace kerf::cli
