// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "kerf/plan/problem.h"

namespace kerf::partition {

// Units (by node, as units.h numbers them) with those joined that use parts of one weight, where
// memory is short and they stand close together: apart, each of their devices would hold all of it.
// Whatever stands between them in the graph's order is joined too, so that no cycle arises. Users
// that are far apart (a tied embedding and head) are left alone.
std::vector<std::size_t> join_weight_sharers(const Problem& problem,
                                             std::vector<std::size_t> unit_of);

}  // namespace kerf::partition
