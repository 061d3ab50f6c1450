// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/training/looped.h"

#include <fmt/format.h>

#include "kerf/partition/chain/chain.h"
#include "kerf/partition/raise/finish.h"

namespace kerf::partition {
namespace {

// As many devices as there will be stages; the copies of one share its memory.
Cluster unrolled_cluster(const Cluster& cluster, std::size_t rounds) {
  const std::size_t count = cluster.num_devices();
  Cluster out;
  for (std::size_t i = 0; i < count * rounds; ++i) {
    Device device = cluster.devices[i % count];
    device.name = fmt::format("{} (stage {})", device.name, i);
    out.devices.push_back(std::move(device));
  }
  for (std::size_t from = 0; from < count * rounds; ++from) {
    for (std::size_t to = 0; to < count * rounds; ++to) {
      out.links.push_back(cluster.link(DeviceId{from % count}, DeviceId{to % count}));
    }
  }
  return out;
}

}  // namespace

Outcome<Plan, Infeasible> looped_plan(const Problem& problem, const Options& options) {
  const std::size_t count = problem.cluster.num_devices();
  Problem unrolled = problem;
  unrolled.stages_per_device = 1;
  unrolled.objective = Objective::throughput;
  unrolled.cluster =
      unrolled_cluster(problem.cluster, static_cast<std::size_t>(problem.stages_per_device));
  // What the devices hold is judged below, for the plan as it is.
  for (Device& device : unrolled.cluster.devices) device.memory_limited = false;
  const Outcome<Plan, Infeasible> split = chain(unrolled, options);
  if (!split) return split;
  std::vector<std::vector<NodeId>> stages;
  std::vector<DeviceId> devices;
  for (const Stage& stage : split->stages) {
    devices.emplace_back(stages.size() % count);
    stages.push_back(stage.nodes);
  }
  Outcome<Plan, Infeasible> outcome =
      finish_plan(problem, std::move(stages), std::move(devices), "looped chain");
  if (!outcome) return outcome;
  outcome->truncated = split->truncated;
  if (outcome->num_stages() < count * static_cast<std::size_t>(problem.stages_per_device)) {
    outcome->notes.push_back(
        fmt::format("the graph is cut into {} stages, not {} for each of {} devices: more would "
                    "not be faster, or cannot be cut",
                    outcome->num_stages(), problem.stages_per_device, count));
  }
  return outcome;
}

}  // namespace kerf::partition
