// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Units that every split below a limit keeps on one device, found by minimum cuts.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/mincut/cut_problem.h"

namespace kerf::place {

// group[unit], counted from 0: two units that share a net are fused when, apart, one of their
// devices would reach `limit`. Fused units are heavier and have fewer devices to go to, so this
// repeats until nothing changes or the budget of `scratch` ends.
std::vector<std::uint32_t> fuse_units(const Instance& problem, double limit, double per_one,
                                      FlowScratch& scratch);

}  // namespace kerf::place
