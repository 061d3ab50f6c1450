// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Devices that no plan can tell apart.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/base/infinity.h"
#include "kerf/place/instance.h"

namespace kerf::place {

struct DeviceClass {
  std::vector<SlotId> devices;  // of the problem, ascending
  double slowness = 1;
  double memory = kInfinity;  // infinite when all units fit
  bool is_cpu = false;
  bool pays = true;          // for tensors
  std::vector<double> time;  // by unit; infinite where it cannot run

  int count() const { return static_cast<int>(devices.size()); }
  // Whatever the other can take, this one takes no slower.
  bool is_better_than(const DeviceClass& other) const {
    return !is_cpu && !other.is_cpu && slowness <= other.slowness && memory >= other.memory;
  }
};

// Accelerators by slowness, then by memory, the largest first; the CPU comes last. No class has
// more devices than there are units.
std::vector<DeviceClass> find_classes(const Instance& instance);

}  // namespace kerf::place
