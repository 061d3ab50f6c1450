// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/chain/device_classes.h"

#include <algorithm>

namespace kerf::partition {
namespace {

bool same_cost(const Link& a, const Link& b) {
  return a.latency == b.latency && a.bytes_per_second == b.bytes_per_second;
}

bool same_links(const Cluster& cluster, DeviceId a, DeviceId b) {
  if (!same_cost(cluster.link(a, b), cluster.link(b, a))) return false;
  for (const DeviceId other : given_order(cluster)) {
    if (other == a || other == b) continue;
    if (!same_cost(cluster.link(a, other), cluster.link(b, other))) return false;
    if (!same_cost(cluster.link(other, a), cluster.link(other, b))) return false;
  }
  return true;
}

bool same_memory(const Cluster& cluster, DeviceId a, DeviceId b) {
  const int first = cluster.device(a).memory_group;
  const int second = cluster.device(b).memory_group;
  if (first == second) return true;
  if (cluster.group(first).size() != 1 || cluster.group(second).size() != 1) return false;
  if (cluster.group_limited(first) != cluster.group_limited(second)) return false;
  return !cluster.group_limited(first) || cluster.group_limit(first) == cluster.group_limit(second);
}

}  // namespace

std::vector<DeviceClass> find_classes(const ChainModel& model) {
  std::vector<DeviceClass> classes;
  for (std::size_t d = 0; d < model.devices.size(); ++d) {
    const auto same = [&](const DeviceClass& other) { return other.model == model.devices[d]; };
    auto found = std::find_if(classes.begin(), classes.end(), same);
    if (found == classes.end()) found = classes.insert(found, {model.devices[d], {}});
    found->members.push_back(model.ids[d]);
  }
  return classes;
}

bool interchangeable(const Cluster& cluster, DeviceId a, DeviceId b) {
  if (a == b) return true;
  const Device& first = cluster.device(a);
  const Device& second = cluster.device(b);
  return first.speed == second.speed && first.host == second.host && same_memory(cluster, a, b) &&
         same_links(cluster, a, b);
}

bool all_interchangeable(const Cluster& cluster) {
  for (const DeviceId device : given_order(cluster)) {
    if (!interchangeable(cluster, DeviceId{0}, device)) return false;
  }
  return true;
}

}  // namespace kerf::partition
