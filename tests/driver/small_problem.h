// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "kerf/device/devices.h"
#include "kerf/driver/make_problem.h"
#include "tests/support/small_graph.h"

namespace kerf {

inline Problem small_problem(std::string_view devices, const ProblemSettings& settings = {}) {
  return make_problem(small_graph(), parse_devices(devices), {}, settings);
}

}  // namespace kerf
