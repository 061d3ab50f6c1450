// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Units that every split below a limit keeps on one device, found by minimum cuts.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/instance.h"
#include "kerf/place/mincut/max_flow.h"

namespace kerf::place {

struct Fused {
  Instance instance;          // merged
  std::vector<UnitId> group;  // by unit, its unit of `instance`
};

// Two units that share a net are fused when, apart, one of their devices would reach `limit`. Fused
// units are heavier and have fewer devices to go to, so this repeats until nothing changes or the
// budget of `scratch` ends. `per_one` as CutNetwork has it.
Fused fuse(const Instance& instance, double limit, double per_one, FlowScratch& scratch);

}  // namespace kerf::place
