// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace kerf {

std::vector<DeviceId> Plan::stage_devices() const {
  std::vector<DeviceId> devices;
  for (const Stage& stage : stages) devices.push_back(stage.device);
  return devices;
}

std::vector<StageId> Plan::stage_of_nodes() const {
  std::vector<StageId> stage_of(node_names.size());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const NodeId node : stages[s].nodes) stage_of[node.index()] = StageId{s};
  }
  return stage_of;
}

Bytes Plan::cut_bytes() const {
  Bytes sum;
  for (const Cut& cut : cuts) {
    std::vector<DeviceId> devices;
    for (const StageId to : cut.to) devices.push_back(stage(to).device);
    std::sort(devices.begin(), devices.end());
    devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
    std::erase(devices, stage(cut.from).device);
    sum += cut.bytes * static_cast<std::int64_t>(devices.size());
  }
  return sum;
}

Schedule make_schedule(const Plan& plan) {
  return schedule_maker(plan.schedule)(
      plan.stage_devices(), static_cast<int>(plan.cluster.num_devices()), plan.n_microbatches);
}

void check_plan_matches(const Plan& plan, const Graph& graph) {
  if (plan.graph_hash == graph.hash()) return;
  throw Error(ErrorKind::invalid_plan,
              fmt::format("[plan.check] the plan was made for graph '{}' with hash {}; the graph "
                          "here, '{}', has hash {}; plan this graph, or load the other one",
                          plan.graph_name, plan.graph_hash, graph.name(), graph.hash()));
}

}  // namespace kerf
