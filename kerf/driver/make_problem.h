// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "kerf/plan/problem.h"
#include "kerf/plan/recompute.h"

namespace kerf {

// What is asked of a plan, beside the graph, its costs and the devices: fields of Problem.
struct ProblemSettings {
  Objective objective = Objective::throughput;
  CommModel comm_model = CommModel::link;
  std::string schedule = "fill_drain";
  int n_microbatches = 1;
  std::int64_t batch = 0;
  std::uint64_t seed = 0;
  int stages_per_device = 1;
  bool training = false;
  std::string optimizer = "adamw";
  RecomputeChoice recompute = {};
  // By name of a value: Problem::transfer_times.
  std::map<std::string, Nanoseconds> transfer_times = {};
  bool keep_last_stage = false;
};

// The problem as every face poses it. Without a profile the costs are estimated from shapes, for
// profiled_kind(cluster) at the micro-batch. Devices of another kind than the profile's get their
// relative speeds (profile/speeds.h). Times under load count as far as neighbours are busy
// (profile/load.h). Throws Error(invalid_argument) when there is no device, when
// n_microbatches is out of range, or for a transfer of a value that the graph does not have; the
// rest is checked by who plans it (check_problem).
Problem make_problem(Graph graph, Cluster cluster, std::optional<Profile> profile = std::nullopt,
                     const ProblemSettings& settings = {});

}  // namespace kerf
