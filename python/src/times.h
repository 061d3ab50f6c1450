// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "kerf/base/units.h"

namespace kerf::bindings {

// Seconds by name, as users give them.
inline std::map<std::string, Nanoseconds> to_times(const std::map<std::string, double>& seconds) {
  std::map<std::string, Nanoseconds> out;
  for (const auto& [name, time] : seconds) out.emplace(name, Nanoseconds{time * 1e9});
  return out;
}

}  // namespace kerf::bindings
