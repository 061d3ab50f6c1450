// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/metrics.h"

#include <algorithm>
#include <limits>

#include "kerf/base/sort_unique.h"
#include "kerf/graph/has_backward.h"

namespace kerf {
namespace {

void charge_link(std::span<const Stage> stages, const Cut& cut, const Cluster& cluster,
                 std::vector<DeviceLoad>& loads) {
  const DeviceId from = stages[cut.from.index()].device;
  for (const DeviceId to : receivers(stages, cut)) {
    loads[to.index()].communication += transfer_time(cut, cluster.link(from, to));
  }
}

void charge_host_staged(std::span<const Stage> stages, const Cut& cut, const Cluster& cluster,
                        std::vector<DeviceLoad>& loads) {
  const DeviceId from = stages[cut.from.index()].device;
  loads[from.index()].communication += upload_time(stages, cut, cluster);
  for (const DeviceId to : receivers(stages, cut)) {
    if (cluster.device(to).host) continue;
    loads[to.index()].communication += transfer_time(cut, cluster.link(from, to));
  }
}

void charge_overlapped(std::span<const Stage> stages, const Cut& cut, const Cluster& cluster,
                       std::vector<DeviceLoad>& loads) {
  const DeviceId from = stages[cut.from.index()].device;
  for (const DeviceId to : receivers(stages, cut)) {
    loads[from.index()].communication += transfer_time(cut, cluster.link(from, to));
  }
}

}  // namespace

Nanoseconds transfer_time(const Cut& cut, const Link& link) {
  return cut.cost ? *cut.cost : link.time(cut.bytes);
}

std::vector<DeviceId> receivers(std::span<const Stage> stages, const Cut& cut) {
  std::vector<DeviceId> devices;
  for (const StageId to : cut.to) devices.push_back(stages[to.index()].device);
  sort_unique(devices);
  std::erase(devices, stages[cut.from.index()].device);
  return devices;
}

Nanoseconds upload_time(std::span<const Stage> stages, const Cut& cut, const Cluster& cluster) {
  const DeviceId from = stages[cut.from.index()].device;
  Nanoseconds slowest;
  if (cluster.device(from).host) return slowest;
  for (const DeviceId to : receivers(stages, cut)) {
    slowest = std::max(slowest, transfer_time(cut, cluster.link(from, to)));
  }
  return slowest;
}

std::vector<Cut> find_cuts(const Graph& graph, std::span<const StageId> stage_of,
                           std::int64_t micro_batch) {
  std::vector<Cut> cuts;
  for (std::size_t i = 0; i < graph.num_values(); ++i) {
    const Value& value = graph.values()[i];
    if (value.origin != Origin::node || value.scalar) continue;
    const StageId from = stage_of[value.producer.index()];
    std::vector<StageId> to;
    for (const NodeId consumer : graph.consumers(ValueId{i})) {
      if (stage_of[consumer.index()] != from) to.push_back(stage_of[consumer.index()]);
    }
    if (to.empty()) continue;
    sort_unique(to);
    cuts.push_back({value.name, ValueId{i}, value.bytes(micro_batch), from, std::move(to), {}});
  }
  return cuts;
}

void find_gradients(const Graph& graph, std::span<const StageId> stage_of, std::vector<Cut>& cuts) {
  for (Cut& cut : cuts) {
    if (!graph.value(cut.value).requires_grad) continue;
    for (const NodeId consumer : graph.consumers(cut.value)) {
      const StageId user = stage_of[consumer.index()];
      if (user != cut.from && has_backward(graph, consumer)) cut.gradients.push_back(user);
    }
    sort_unique(cut.gradients);
  }
}

std::vector<std::vector<StageId>> stage_dependencies(const Graph& graph,
                                                     std::span<const StageId> stage_of,
                                                     std::size_t num_stages) {
  std::vector<std::vector<StageId>> after(num_stages);
  for (std::size_t i = 0; i < graph.num_nodes(); ++i) {
    for (const NodeId before : graph.predecessors(NodeId{i})) {
      if (stage_of[before.index()] != stage_of[i]) {
        after[stage_of[i].index()].push_back(stage_of[before.index()]);
      }
    }
  }
  for (std::vector<StageId>& list : after) {
    sort_unique(list);
  }
  return after;
}

std::vector<DeviceLoad> device_loads(std::span<const Stage> stages, std::span<const Cut> cuts,
                                     const Cluster& cluster, CommModel comm_model) {
  std::vector<DeviceLoad> loads(cluster.num_devices());
  for (const Stage& stage : stages) loads[stage.device.index()].compute += stage.time;
  for (const Cut& cut : cuts) {
    switch (comm_model) {
      case CommModel::link: charge_link(stages, cut, cluster, loads); break;
      case CommModel::host_staged: charge_host_staged(stages, cut, cluster, loads); break;
      case CommModel::overlapped: charge_overlapped(stages, cut, cluster, loads); break;
    }
  }
  if (comm_model == CommModel::overlapped) {
    for (DeviceLoad& load : loads) {
      load.communication = std::max(Nanoseconds{}, load.communication - load.compute);
    }
  }
  return loads;
}

double samples_per_second(double samples, Nanoseconds step) {
  if (step.count <= 0) return 0;
  return std::min(samples * 1e9 / step.count, std::numeric_limits<double>::max());
}

Nanoseconds busiest(std::span<const DeviceLoad> loads) {
  Nanoseconds most;
  for (const DeviceLoad& load : loads) most = std::max(most, load.busy());
  return most;
}

}  // namespace kerf
