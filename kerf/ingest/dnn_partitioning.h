// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Problem files published with "Efficient Algorithms for Device Placement of DNN Graph Operators"
// (Tarnawski et al., NeurIPS 2020; repository msr-fiddle/dnn-partitioning), read as they are.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/place/load_problem.h"
#include "kerf/place/objective.h"

namespace kerf {

// {"maxFPGAs", "maxCPUs", "maxSizePerFPGA", "nodes": [{"id", "cpuLatency", "fpgaLatency", ...}],
//  "edges": [{"sourceId", "destId", "cost"}]}. Throws Error(invalid_graph) with the id or the place
// of what is wrong: duplicate and unknown ids, costs that differ among the edges out of one node,
// negative times, cycles (one is printed).
LoadProblem parse_dnn_partitioning(std::string_view text, std::string_view source);
LoadProblem load_dnn_partitioning(const std::string& path);

// A split to score: {"assignment": {"<id>": <accelerator> | "cpu"}} as `kerf plan --json` writes
// it, a bare map of ids, or the published output: {"fpgas": [{"nodes": [ids]}], "cpus": [...]} and
// its kin. Answers device[node]; throws Error(invalid_plan) naming ids that are missing or unknown.
std::vector<SlotId> parse_split(const LoadProblem& problem, std::string_view text,
                                std::string_view source);

// What a plan of Kerf's says of itself; nothing for other splits.
struct SplitClaim {
  std::string problem;  // the file it was made for
  Objective objective = Objective::throughput;
  double value = 0;
};
std::optional<SplitClaim> parse_split_claim(std::string_view text, std::string_view source);

}  // namespace kerf
