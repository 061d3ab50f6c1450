// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/flow.h"

#include <algorithm>

namespace kerf::derive {
namespace {

void make_set(std::vector<StageId>& stages) {
  std::sort(stages.begin(), stages.end());
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
}

void read_makers(const Graph& graph, Flow& flow) {
  flow.maker.resize(graph.num_values());
  for (std::size_t v = 0; v < graph.num_values(); ++v) {
    const Value& value = graph.values()[v];
    if (value.origin == Origin::node) flow.maker[v] = flow.stage_of[value.producer.index()];
  }
}

void read_users(const Graph& graph, Flow& flow) {
  flow.users.resize(graph.num_values());
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    const StageId stage = flow.stage_of[n];
    for (const NamedArgument& argument : graph.nodes()[n].args) {
      for_each_value(argument.value, [&](ValueId value) {
        if (flow.maker[value.index()] != stage) flow.users[value.index()].push_back(stage);
      });
    }
  }
  for (std::vector<StageId>& users : flow.users) make_set(users);
}

void read_results(const Graph& graph, Flow& flow) {
  flow.result.resize(graph.num_values());
  for (const GraphOutput& output : graph.outputs()) {
    for_each_value(output.leaf, [&](ValueId value) { flow.result[value.index()] = true; });
  }
}

void read_waits(const Graph& graph, Flow& flow) {
  for (std::size_t v = 0; v < graph.num_values(); ++v) {
    if (!flow.maker[v].valid()) continue;
    for (const StageId user : flow.users[v]) flow.after[user.index()].push_back(flow.maker[v]);
  }
  for (const Edge& edge : graph.order_edges()) {
    const StageId from = flow.stage_of[edge.from.index()];
    const StageId to = flow.stage_of[edge.to.index()];
    if (from != to) flow.after[to.index()].push_back(from);
  }
  for (std::vector<StageId>& stages : flow.after) make_set(stages);
}

}  // namespace

Flow read_flow(const Graph& graph, std::vector<StageId> stage_of, std::size_t num_stages) {
  Flow flow;
  flow.stage_of = std::move(stage_of);
  flow.after.resize(num_stages);
  read_makers(graph, flow);
  read_users(graph, flow);
  read_results(graph, flow);
  read_waits(graph, flow);
  return flow;
}

}  // namespace kerf::derive
