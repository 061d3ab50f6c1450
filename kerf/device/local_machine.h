// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kerf/base/units.h"

namespace kerf {

struct LocalMachine {
  std::vector<int> cores;  // those this process may run on, ascending
  Bytes memory;            // physical, or the control group's limit when that is smaller
};

// Asks the system each time: affinity may change. Never fails; an unknown memory is 0.
LocalMachine local_machine();

// The data caches of some cores of this machine, of all levels, shared ones once; none: of all that
// this process may run on. Where the system does not tell: 32 MiB. `folder`: the system's, of its
// cores.
Bytes cache_bytes(std::span<const int> cores,
                  const std::string& folder = "/sys/devices/system/cpu");

}  // namespace kerf
