// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kerf/base/sort_unique.h"
#include "kerf/base/topological_order.h"
#include "kerf/partition/fx/judge.h"
#include "kerf/simulate/simulate.h"

namespace kerf::partition::fx {
namespace {

constexpr double kNanosecondsInASecond = 1e9;

Cluster cluster_of(const Request& request) {
  Cluster cluster;
  for (const Device& device : request.devices) {
    kerf::Device logical;
    logical.name = device.name;
    logical.memory_group = static_cast<int>(cluster.devices.size());
    cluster.devices.push_back(logical);
  }
  Link link;
  link.latency = Nanoseconds{request.transfer_latency * kNanosecondsInASecond};
  link.bytes_per_second = std::isfinite(request.rate) && request.rate > 0 ? request.rate : 0;
  cluster.links.assign(cluster.devices.size() * cluster.devices.size(), link);
  return cluster;
}

// Positions of the partitions in the order in which they can run, by first op where there is a
// choice.
std::vector<std::uint32_t> run_order(const OpGraph& graph, std::span<const Partition> partitions) {
  std::vector<OpIndex> first(partitions.size(), static_cast<OpIndex>(graph.num_nodes()));
  for (std::size_t p = 0; p < partitions.size(); ++p) {
    for (const OpIndex n : partitions[p].nodes) {
      if (!graph.node(n).leaf) first[p] = std::min(first[p], n);
    }
  }
  return least_first_order(
      static_cast<std::uint32_t>(partitions.size()),
      [&](std::uint32_t p, const auto& visit) {
        for (const std::size_t child : partitions[p].children) {
          visit(static_cast<std::uint32_t>(child));
        }
      },
      [&](std::uint32_t p) { return first[p]; });
}

}  // namespace

double serial_latency(const Request& request, std::span<const Partition> partitions) {
  const OpGraph& graph = request.graph;
  Plan plan;
  plan.cluster = cluster_of(request);
  const std::vector<std::uint32_t> order = run_order(graph, partitions);
  std::vector<StageId> stage_of(graph.num_nodes());
  for (std::size_t s = 0; s < order.size(); ++s) {
    const Partition& partition = partitions[order[s]];
    Stage stage;
    stage.device = DeviceId{find_device(request.devices, partition.device_ids.front())};
    for (const OpIndex n : partition.nodes) {
      if (graph.node(n).leaf) continue;
      stage_of[n] = StageId{s};
      const double seconds = graph.node(n).latency();
      if (!std::isnan(seconds)) stage.time += Nanoseconds{seconds * kNanosecondsInASecond};
    }
    plan.stages.push_back(stage);
  }
  for (const OpIndex n : graph.ops()) {
    Cut cut;
    cut.from = stage_of[n];
    cut.bytes = Bytes{std::max<std::int64_t>(graph.node(n).output_size, 0)};
    for (const OpIndex user : graph.users(n)) {
      if (stage_of[user] != cut.from) cut.to.push_back(stage_of[user]);
    }
    sort_unique(cut.to);
    for (const StageId to : cut.to) {
      std::vector<StageId>& after = plan.stages[to.index()].after;
      if (std::find(after.begin(), after.end(), cut.from) == after.end()) after.push_back(cut.from);
    }
    if (cut.to.empty()) continue;
    cut.value = ValueId{plan.cuts.size()};
    plan.cuts.push_back(std::move(cut));
  }
  for (Stage& stage : plan.stages) std::sort(stage.after.begin(), stage.after.end());
  return simulate(plan, 1).end().count / kNanosecondsInASecond;
}

}  // namespace kerf::partition::fx
