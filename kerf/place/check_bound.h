// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace kerf::place {

// A bound above the value of a plan proves nothing but a fault of Kerf's. Throws Error(internal)
// with both figures; what rounding explains is none.
void check_bound(std::string_view name, double bound, double value);

}  // namespace kerf::place
