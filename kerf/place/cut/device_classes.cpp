// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/place/cut/device_classes.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace kerf::place {
namespace {

DeviceClass class_of(const Devices& problem, SlotId device, double all_bytes) {
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

void find_times(DeviceClass& device, const Instance& instance) {
  const SlotId first = device.devices.front();
  for (UnitId t{0}; t < instance.num_units(); ++t) {
    device.time.push_back(instance.runs_on(t, first) ? instance.time(t, first) : kInfinity);
  }
}

}  // namespace

std::vector<DeviceClass> find_classes(const Instance& instance) {
  const double bytes = std::accumulate(instance.bytes.begin(), instance.bytes.end(), 0.0);
  std::vector<DeviceClass> all;
  for (SlotId d{0}; d < instance.num_devices; ++d) {
    all.push_back(class_of(instance, d, bytes));
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
    } else if (out.back().devices.size() < instance.num_units()) {
      out.back().devices.push_back(device.devices.front());
    }
  }
  for (DeviceClass& device : out) find_times(device, instance);
  return out;
}

}  // namespace kerf::place
