// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/ideals/device_classes.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace kerf::place::ideals {
namespace {

DeviceClass class_of(const Devices& problem, std::uint32_t device, double all_bytes) {
  DeviceClass out;
  out.devices = {device};
  out.is_cpu = device == problem.cpu;
  out.pays = !out.is_cpu || problem.charging == Charging::link;
  if (!out.is_cpu) out.slowness = problem.slowness[device];
  // With room to spare, so that the order of a sum makes no difference.
  const double memory = problem.memory[device];
  if (memory < all_bytes * (1 + 1e-9)) out.memory = memory;
  return out;
}

void find_times(DeviceClass& device, const Instance& groups) {
  const std::uint32_t first = device.devices.front();
  for (std::uint32_t g = 0; g < groups.num_tasks(); ++g) {
    device.time.push_back(groups.runs_on(g, first) ? groups.time(g, first) : kInfinity);
  }
}

}  // namespace

std::vector<DeviceClass> find_classes(const Instance& groups) {
  const double bytes = std::accumulate(groups.bytes.begin(), groups.bytes.end(), 0.0);
  std::vector<DeviceClass> all;
  for (std::uint32_t d = 0; d < groups.num_devices; ++d) {
    all.push_back(class_of(groups, d, bytes));
  }
  const auto key = [](const DeviceClass& device) {
    return std::tuple(device.is_cpu, device.slowness, -device.memory);
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const auto& a, const auto& b) { return key(a) < key(b); });
  std::vector<DeviceClass> out;
  for (const DeviceClass& device : all) {
    if (out.empty() || key(out.back()) != key(device)) {
      out.push_back(device);
    } else if (out.back().devices.size() < groups.num_tasks()) {
      out.back().devices.push_back(device.devices.front());
    }
  }
  for (DeviceClass& device : out) find_times(device, groups);
  return out;
}

}  // namespace kerf::place::ideals
