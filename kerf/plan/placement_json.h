// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kerf/plan/placement.h"

namespace kerf {

// Units as a file has them, in the order of their use (docs/formats.md, units.json).
struct UnitsFile {
  std::vector<std::string> paths;
  std::vector<StreamUnit> units;
};

// Throws Error(invalid_argument) that says where the file is wrong; Error(io).
UnitsFile load_units(const std::string& path);

// placement.json 1.0.
std::string placement_json(const Placement& placement);

}  // namespace kerf
