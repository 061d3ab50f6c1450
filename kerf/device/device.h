// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/base/units.h"

namespace kerf {

// One logical device: what a stage is placed on. CPU devices own cores, so that everything can be
// tried without an accelerator; an accelerator named twice is two logical devices with a stream
// each.
struct Device {
  std::string name;          // unique: "cpu:0", "cuda:0", "cuda:0#1", "h200:3"
  std::string kind = "cpu";  // "cpu", "cuda", or a preset of device/kind.h such as "h200"
  Bytes memory;              // the limit; meaningless unless memory_limited
  bool memory_limited = false;
  double speed = 1.0;      // relative to the kind the profile was made for: 2 is twice as fast
  bool host = true;        // lives in host memory; false for accelerators
  std::vector<int> cores;  // CPU devices on this machine: the cores it owns
  int ordinal = 0;         // accelerators: which one, as the framework counts them
  int memory_group = 0;    // devices of one group share one memory and one limit

  friend bool operator==(const Device&, const Device&) = default;
};

}  // namespace kerf
