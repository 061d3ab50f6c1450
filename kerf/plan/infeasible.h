// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/base/id.h"
#include "kerf/base/units.h"

namespace kerf {

// Why there is no plan: an expected answer, hence a value and not an exception.
struct Infeasible {
  std::string method;
  DeviceId tightest;   // the device that is shortest of memory in the best split that was found
  std::string device;  // its name
  Bytes needed;        // there, in that split
  Bytes limit;
  Bytes short_by;  // needed - limit
  std::string what_would_help;
  bool timed_out = false;  // the clock ended something: another run may find a plan

  // "[partition.chain] no plan fits: cpu:1 is short of 1.20 GiB (needs ..., has ...); ..."
  std::string message() const;
};

}  // namespace kerf
