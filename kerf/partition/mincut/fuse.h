// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Units that every split below a limit keeps on one device, found by minimum cuts.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/partition/mincut/cut_problem.h"

namespace kerf::partition {

// group[unit], counted from 0: two units that share a net are fused when, apart, one of their
// devices would reach `limit`. Fused units are heavier and leave the CPU fewer choices, so this
// repeats until nothing changes. `steps` grows by the work done.
std::vector<std::uint32_t> fuse_units(const UnitProblem& problem, double limit, double per_one,
                                      std::int64_t& steps);

}  // namespace kerf::partition
