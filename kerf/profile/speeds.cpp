// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/profile/speeds.h"

#include <fmt/format.h>

#include <algorithm>

#include "kerf/device/kind.h"
#include "kerf/profile/estimate.h"

namespace kerf {

Cluster with_relative_speeds(Cluster cluster, const Graph& graph, const Profile& profile) {
  const DeviceKind* profiled = find_device_kind(profile.device_kind);
  if (profiled == nullptr) return cluster;
  double there = 0;  // estimated when first needed
  // The kinds' figures for CPUs are those of one core, and so is an estimate; a measured profile
  // was made with the cores of a device.
  for (Device& device : cluster.devices) {
    const DeviceKind* kind = find_device_kind(device.kind);
    if (device.kind == profile.device_kind || device.speed != 1.0 || kind == nullptr) continue;
    const double here = estimate(graph, *kind, profile.batch).total_forward().count;
    if (there == 0) there = estimate(graph, *profiled, profile.batch).total_forward().count;
    if (here <= 0 || there <= 0) continue;
    const double cores = static_cast<double>(std::max<std::size_t>(device.cores.size(), 1));
    device.speed = there / here * (device.host ? cores : 1.0);
    cluster.notes.push_back(fmt::format(
        "{} is taken to be {:.3g} times as fast as the profiled {}, according to estimates of both",
        device.name, device.speed, profile.device_kind));
  }
  return cluster;
}

}  // namespace kerf
