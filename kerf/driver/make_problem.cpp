// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/driver/make_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kerf/base/nearest_name.h"
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

void check_has_gradients(const Graph& graph) {
  for (const GraphOutput& output : graph.outputs()) {
    const auto* const value = output.leaf.find<ValueId>();
    if (value != nullptr && graph.value(*value).requires_grad) return;
  }
  throw Error(ErrorKind::invalid_argument,
              "[driver.make_problem] training of a graph none of whose results requires a "
              "gradient; expected a trainable parameter; unfreeze one and trace again");
}

std::vector<std::optional<Nanoseconds>> by_value(const Graph& graph,
                                                 const std::map<std::string, Nanoseconds>& times) {
  std::vector<std::optional<Nanoseconds>> out;
  if (times.empty()) return out;
  out.resize(graph.num_values());
  std::size_t found = 0;
  for (std::size_t v = 0; v < out.size(); ++v) {
    const auto given = times.find(graph.values()[v].name);
    if (given == times.end()) continue;
    out[v] = given->second;
    ++found;
  }
  if (found == times.size()) return out;
  std::vector<std::string> names;
  for (const Value& value : graph.values()) names.push_back(value.name);
  for (const auto& [name, time] : times) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    throw Error(ErrorKind::invalid_argument,
                fmt::format("[driver.make_problem] a transfer time for '{}'; expected the name of "
                            "a value of graph '{}'{}",
                            name, graph.name(), nearest_name_hint(name, names)));
  }
  return out;
}

void ask_for_training(const ProblemSettings& settings, Problem& problem) {
  check_train_mode(problem.graph, "driver.make_problem");
  check_has_gradients(problem.graph);
  problem.training = true;
  problem.recompute = settings.recompute.name();
  set_recomputed(problem, chosen_blocks(problem.graph, settings.recompute));
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
  problem.transfer_times = by_value(problem.graph, settings.transfer_times);
  problem.keep_last_stage = settings.keep_last_stage;
  // Words that nobody knows are refused for inference, too, which has no use for them.
  problem.optimizer = optimizer(settings.optimizer).name;
  chosen_blocks(problem.graph, settings.recompute);
  if (settings.training) ask_for_training(settings, problem);
  problem.profile = profile ? with_load(*std::move(profile), cluster, problem.n_microbatches)
                            : estimate(problem.graph, device_kind(profiled_kind(cluster)),
                                       problem.micro_batch(), problem.training);
  problem.cluster = with_relative_speeds(std::move(cluster), problem.graph, problem.profile);
  return problem;
}

}  // namespace kerf
