// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "kerf/partition/fx/original_error.h"
#include "kerf/partition/fx/partition.h"

namespace kerf::partition::fx {
namespace {

// The nodes that lie on one device.
struct OnDevice {
  std::vector<bool> holds;  // empty: nothing
  std::int64_t left = 0;
};

void put(const OpGraph& graph, OnDevice& device, const Partition& partition) {
  if (device.holds.empty() && !partition.nodes.empty()) device.holds.resize(graph.num_nodes());
  for (const OpIndex n : partition.nodes) device.holds[n] = true;
}

// Bytes that the partition adds to a device: what lies there already is free to read.
std::int64_t needed(const OpGraph& graph, const OnDevice& device, const Partition& partition,
                    const std::vector<bool>& own) {
  if (device.holds.empty()) return partition.used_bytes;
  std::int64_t bytes = 0;
  for (const OpIndex n : partition.nodes) {
    bytes += graph.node(n).total_size;
    for (const OpIndex input : graph.inputs(n)) {
      if (!own[input] && !device.holds[input]) bytes += graph.node(input).output_size;
    }
  }
  return bytes;
}

}  // namespace

std::size_t find_device(std::span<const Device> devices, std::int64_t id) {
  std::size_t d = 0;
  while (d < devices.size() && devices[d].id != id) ++d;
  return d;
}

std::size_t largest_device(std::span<const Device> devices) {
  return static_cast<std::size_t>(
      std::max_element(devices.begin(), devices.end(),
                       [](const Device& a, const Device& b) { return a.memory < b.memory; }) -
      devices.begin());
}

DeviceStats device_stats(std::span<const Partition> partitions, std::span<const Device> devices) {
  DeviceStats stats;
  std::vector<std::size_t> slot(devices.size());
  for (std::size_t d = 0; d < devices.size(); ++d) {
    std::size_t s = 0;
    while (s < stats.distinct.size() && devices[stats.distinct[s]] != devices[d]) ++s;
    slot[d] = s;
    if (s < stats.distinct.size()) continue;
    stats.distinct.push_back(d);
    stats.left_bytes.push_back(devices[d].memory);
  }
  stats.partitions.resize(stats.distinct.size());
  for (std::size_t p = 0; p < partitions.size(); ++p) {
    if (partitions[p].device_ids.empty()) stats.no_device.push_back(p);
    for (const std::int64_t id : partitions[p].device_ids) {
      std::size_t d = devices.size();  // of several with one id, the last
      while (d > 0 && devices[d - 1].id != id) --d;
      if (d == 0) throw OriginalError(OriginalError::Kind::key_device, fmt::format("{}", id), id);
      stats.partitions[slot[d - 1]].push_back(p);
      stats.left_bytes[slot[d - 1]] -= partitions[p].used_bytes;
    }
  }
  return stats;
}

bool map_to_devices(const OpGraph& graph, std::vector<Partition>& partitions,
                    std::span<const Device> devices, bool strict) {
  const DeviceStats stats = device_stats(partitions, devices);
  std::vector<OnDevice> on(stats.distinct.size());
  std::vector<std::size_t> order(stats.distinct.size());
  for (std::size_t s = 0; s < on.size(); ++s) {
    order[s] = s;
    on[s].left = stats.left_bytes[s];
    for (const std::size_t p : stats.partitions[s]) put(graph, on[s], partitions[p]);
  }
  std::vector<bool> own(graph.num_nodes());
  for (const std::size_t p : stats.no_device) {
    Partition& partition = partitions[p];
    for (const OpIndex n : partition.nodes) own[n] = true;
    // Sorted anew from the last order, so that equals keep their places.
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return on[a].left < on[b].left; });
    const auto found = std::find_if(order.begin(), order.end(), [&](std::size_t s) {
      const std::int64_t bytes = needed(graph, on[s], partition, own);
      if (strict ? bytes >= on[s].left : bytes > on[s].left) return false;
      on[s].left -= bytes;
      put(graph, on[s], partition);
      partition.device_ids.push_back(devices[stats.distinct[s]].id);
      return true;
    });
    for (const OpIndex n : partition.nodes) own[n] = false;
    if (found == order.end()) return false;
  }
  return true;
}

}  // namespace kerf::partition::fx
