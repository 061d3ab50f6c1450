// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Plans made by hand, with no planner: stages by node names.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kerf/device/devices.h"
#include "kerf/plan/plan.h"

namespace kerf {

// Stages are lists of node names; devices[s] indexes `device_names`. Times are 10, 20, ... ns.
inline Plan hand_plan(const Graph& graph, const std::vector<std::vector<std::string>>& stages,
                      const std::vector<int>& devices, const std::vector<std::string>& device_names,
                      int n_microbatches = 1) {
  Plan plan;
  plan.graph_hash = graph.hash();
  plan.cluster = make_cluster(device_names);
  plan.n_microbatches = n_microbatches;
  plan.batch = graph.data().example_batch;
  plan.micro_batch = (plan.batch + n_microbatches - 1) / n_microbatches;
  for (const Node& node : graph.nodes()) plan.node_names.push_back(node.name);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    Stage stage;
    stage.device = DeviceId(devices[s]);
    stage.time = {10.0 * static_cast<double>(s + 1)};
    for (const std::string& name : stages[s]) stage.nodes.push_back(graph.find_node(name));
    std::sort(stage.nodes.begin(), stage.nodes.end());
    plan.stages.push_back(std::move(stage));
  }
  const std::vector<StageId> stage_of = plan.stage_of_nodes();
  for (std::size_t v = 0; v < graph.num_values(); ++v) {
    const Value& value = graph.value(ValueId(v));
    if (value.origin != Origin::node) continue;
    Cut cut{value.name, ValueId(v), value.bytes(plan.micro_batch), stage_of[value.producer.index()],
            {},         {}};
    for (const NodeId user : graph.consumers(ValueId(v))) {
      if (stage_of[user.index()] != cut.from) cut.to.push_back(stage_of[user.index()]);
    }
    std::sort(cut.to.begin(), cut.to.end());
    cut.to.erase(std::unique(cut.to.begin(), cut.to.end()), cut.to.end());
    if (!cut.to.empty()) plan.cuts.push_back(std::move(cut));
  }
  return plan;
}

}  // namespace kerf
