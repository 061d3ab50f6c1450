// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/ideals/device_classes.h"

#include <algorithm>
#include <tuple>

namespace kerf::place::ideals {
namespace {

DeviceClass class_of(const LoadProblem& problem, std::uint32_t device, double all_bytes) {
  DeviceClass out;
  out.devices = {device};
  out.is_cpu = device == problem.cpu();
  out.pays = !out.is_cpu || problem.charging == Charging::link;
  if (!out.is_cpu && !problem.slowness.empty()) out.slowness = problem.slowness[device];
  // With room to spare, so that the order of a sum makes no difference.
  const double memory = problem.memory_of(device);
  if (memory < all_bytes * (1 + 1e-9)) out.memory = memory;
  return out;
}

void find_times(DeviceClass& device, const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    const double on_accelerator =
        group.on_accelerator ? group.accelerator_time * device.slowness : kInfinity;
    const double on_cpu = group.on_cpu ? group.cpu_time : kInfinity;
    device.time.push_back(device.is_cpu ? on_cpu : on_accelerator);
  }
}

}  // namespace

std::vector<DeviceClass> find_classes(const LoadProblem& problem,
                                      const std::vector<Group>& groups) {
  double bytes = 0;
  for (const Group& group : groups) bytes += group.bytes;
  std::vector<DeviceClass> all;
  for (std::uint32_t d = 0; d < problem.num_devices(); ++d) {
    all.push_back(class_of(problem, d, bytes));
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
    } else if (out.back().devices.size() < groups.size()) {
      out.back().devices.push_back(device.devices.front());
    }
  }
  for (DeviceClass& device : out) find_times(device, groups);
  return out;
}

}  // namespace kerf::place::ideals
