// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/make_problem.h"

#include <utility>

#include "kerf/device/kind.h"
#include "kerf/profile/estimate.h"
#include "kerf/profile/speeds.h"

namespace kerf {

Problem make_problem(Graph graph, Cluster cluster, std::optional<Profile> profile,
                     const ProblemSettings& settings) {
  Problem problem;
  problem.graph = std::move(graph);
  problem.objective = settings.objective;
  problem.comm_model = settings.comm_model;
  problem.schedule = settings.schedule;
  problem.n_microbatches = settings.n_microbatches;
  problem.batch = settings.batch;
  problem.seed = settings.seed;
  problem.profile =
      profile ? *std::move(profile)
              : estimate(problem.graph, device_kind(profiled_kind(cluster)), problem.micro_batch());
  problem.cluster = with_relative_speeds(std::move(cluster), problem.graph, problem.profile);
  return problem;
}

}  // namespace kerf
