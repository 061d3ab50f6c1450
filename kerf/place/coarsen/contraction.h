// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// An Instance whose units are groups of another's units, and the way between splits of the two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kerf/place/instance.h"

namespace kerf::place {

struct Contraction {
  Instance instance;
  std::vector<UnitId> group_of;  // by unit of the instance it came from

  // A split of the instance it came from that keeps every group on one device, as one of the
  // groups, and back.
  Split to_coarse(std::span<const SlotId> device) const;
  Split to_fine(std::span<const SlotId> device) const;
};

// Edges among groups from edges among their units; a unit of no group (kNoIndex) has none.
UnitRows between_groups(const UnitRows& successors, std::span<const UnitId> group,
                        std::size_t groups);

// merge with the edges among the groups, which may form cycles, and their own order by number.
Instance merge_ordered(const Instance& instance, std::span<const UnitId> group, std::size_t groups);

}  // namespace kerf::place
