// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the searches over an Instance take and give. Deterministic: counted work decides, the
// clock is only a safety stop, and an answer that it cut short says so.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kerf/place/instance.h"
#include "kerf/place/method_options.h"

namespace kerf::place {

struct LoadOptions {
  double time_budget = 1;  // seconds; fixes the counted work
  double clock = 0;        // seconds until its clock strikes; 0: the time budget
  std::uint64_t seed = 0;
  int threads = 1;
  // Stop as soon as an objective at or below this is found (a proved bound).
  double good_enough = 0;
  bool mixed = true;  // several stages on a device; false: one each
  MethodOptions method = {};

  double safety_stop() const { return clock > 0 ? clock : time_budget; }
};

struct LoadAnswer {
  std::vector<SlotId> device;  // by unit; Instance::cpu for the CPU
  double objective = 0;        // max load
  bool optimal = false;        // proved, within the space the method searches
  bool truncated = false;      // its budget or the clock stopped it
  std::int64_t work = 0;       // steps taken, for tests and tables
};

}  // namespace kerf::place
