// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/plan/placement.h"

namespace kerf {

// The placement for people: neighbours that are alike share a row; then what the device holds, what
// a call takes and what it takes at least. Ends with a newline.
std::string placement_table(const Placement& placement);

}  // namespace kerf
