// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kerf/base/units.h"

namespace kerf {

struct LocalMachine {
  std::vector<int> cores;  // those this process may run on, ascending
  Bytes memory;            // physical, or the control group's limit when that is smaller
};

// Asks the system each time: affinity may change. Never fails; an unknown memory is 0.
LocalMachine local_machine();

}  // namespace kerf
