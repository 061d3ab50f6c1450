// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/make_problem.h"

#include <utility>

#include "kerf/device/kind.h"
#include "kerf/graph/train_mode.h"
#include "kerf/plan/recompute.h"
#include "kerf/plan/schedule/schedule.h"
#include "kerf/profile/estimate.h"
#include "kerf/profile/load.h"
#include "kerf/profile/optimizer.h"
#include "kerf/profile/speeds.h"

namespace kerf {
namespace {

void ask_for_training(const ProblemSettings& settings, Problem& problem) {
  check_train_mode(problem.graph, "driver.make_problem");
  problem.training = true;
  problem.recompute = settings.recompute;
  std::vector<std::string> names = recomputed_by(problem.graph, settings.recompute);
  if (settings.recompute == "list") names = settings.scopes;
  set_recomputed(problem, std::move(names));
}

}  // namespace

Problem make_problem(Graph graph, Cluster cluster, std::optional<Profile> profile,
                     const ProblemSettings& settings) {
  Problem problem;
  problem.graph = std::move(graph);
  problem.objective = settings.objective;
  problem.comm_model = settings.comm_model;
  problem.schedule = schedule_kind(settings.schedule).name;
  problem.n_microbatches = settings.n_microbatches;
  problem.batch = settings.batch;
  problem.seed = settings.seed;
  problem.stages_per_device = settings.stages_per_device;
  // Words that nobody knows are refused for inference, too, which has no use for them.
  problem.optimizer = optimizer(settings.optimizer).name;
  recomputed_by(problem.graph, settings.recompute);
  if (settings.recompute == "list") recompute_blocks(problem.graph, settings.scopes);
  if (settings.training) ask_for_training(settings, problem);
  problem.profile = profile ? with_load(*std::move(profile), cluster, problem.n_microbatches)
                            : estimate(problem.graph, device_kind(profiled_kind(cluster)),
                                       problem.micro_batch(), problem.training);
  problem.cluster = with_relative_speeds(std::move(cluster), problem.graph, problem.profile);
  return problem;
}

}  // namespace kerf
