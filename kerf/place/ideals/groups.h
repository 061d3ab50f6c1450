// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// An Instance as the contiguous search sees it: groups of units that every chain of ideals keeps
// together, and the devices by what they can do.
#pragma once

#include <algorithm>
#include <vector>

#include "kerf/place/cut/device_classes.h"
#include "kerf/place/order/condense.h"

namespace kerf::place::ideals {

struct Groups : Condensed {
  explicit Groups(const Instance& instance)
      : Condensed(condense(instance)), classes(find_classes(*this)) {}

  // As far as plans can tell.
  bool has_one_kind() const { return classes.size() < (has_cpu() ? 3U : 2U); }
  // 1 without accelerators.
  double greatest_slowness() const {
    double out = 0;
    for (const DeviceClass& device : classes) {
      if (!device.is_cpu) out = std::max(out, device.slowness);
    }
    return out > 0 ? out : 1;
  }

  std::vector<DeviceClass> classes;  // accelerators, then the CPU
};

}  // namespace kerf::place::ideals
