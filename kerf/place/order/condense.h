// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Units that every sequence of stages keeps together, made one: what is left has topological
// orders.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/place/instance.h"

namespace kerf::place {

// The groups are its units, numbered in a topological order.
struct Condensed : Instance {
  std::vector<UnitId> group_of;  // by unit of the instance it came from

  // An order of groups as one of that instance's units; those of a group as they stand there, since
  // orders are cut inside groups, too.
  Order spread(const Instance& instance, std::span<const UnitId> groups) const;
};

// Units on a cycle form one group. A group that takes no time joins its only neighbour when no
// answer can be lost by it. Linear in the instance, but for sorting its nets.
Condensed condense(const Instance& instance);

}  // namespace kerf::place
