// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "kerf/base/units.h"

namespace kerf::cli {

// {"add_1": 0.001}: seconds that values of the graph take between two devices. Throws
// Error(invalid_argument) naming the file and the key.
std::map<std::string, Nanoseconds> load_transfer_times(const std::string& path);

}  // namespace kerf::cli
