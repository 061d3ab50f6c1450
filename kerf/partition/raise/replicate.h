// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Copies of a finished placement on the devices that it leaves idle (the FX partitioner's
// `saturate_host`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"

namespace kerf {

namespace partition {

// All three by device; `used`: it holds something, if only 0 bytes. By copy: for each used device,
// ascending, the idle device that stands in for it. Greedy, copy by copy: each used device in turn
// takes the idle one of least capacity, the first of equals, that is no smaller than what the used
// one holds. The first copy for which a device finds none ends it. No device is taken twice.
// O(devices^2).
std::vector<std::vector<std::size_t>> find_replicas(std::span<const std::int64_t> used_bytes,
                                                    std::span<const std::uint8_t> used,
                                                    std::span<const std::int64_t> capacity);

}  // namespace partition

// The plan with as many replicas as find_replicas has room for, in place of its own; a note when
// there is none. A device's capacity is what the plan leaves of its memory; copies that do not fit
// by the memory engine, memories shared among them counted, are left out. Any idle device serves,
// faster and slower ones too (a note says so).
Plan saturate_host(const Problem& problem, Plan plan);

}  // namespace kerf
