// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kerf/place/order/line.h"

namespace kerf::place {

// The line in pieces of about equal weight, each cut where little crosses: block by unit, numbered
// along the line. At most `count` of them.
std::vector<UnitId> cut_blocks(const Line& line, std::size_t count);

}  // namespace kerf::place
