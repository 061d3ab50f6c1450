// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Units laid out one after the other, and what it costs to cut the line at each place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/place/ideals/groups.h"
#include "kerf/place/instance.h"

namespace kerf::place {

struct Line {
  std::vector<std::uint32_t> order;   // units
  std::vector<double> weight_before;  // by place, and one more; 1 at the end
  std::vector<double> crossing;       // by place: cost of the tensors with units on both sides
};

// A unit weighs its share of all time or of all memory, whichever is larger: pieces of equal weight
// are small in both.
Line make_line(const Instance& units, std::vector<std::uint32_t> order);

// The units of each group, topologically: their numbers need not be so, and lines are cut inside
// groups, too.
std::vector<std::vector<std::uint32_t>> units_by_group(const Instance& instance,
                                                       const ideals::Groups& groups);

// The units of some groups, one group after the other.
std::vector<std::uint32_t> in_line(const std::vector<std::vector<std::uint32_t>>& members,
                                   std::span<const std::uint32_t> groups);

// The model's own order: by number as far as edges allow.
Line own_line(const Instance& units);
// Topological lines of the problem's units, the first its own. Groups of units that depend on each
// other stay together.
std::vector<Line> topological_lines(const Instance& units);

// The line in pieces of about equal weight, each cut where little crosses: block by unit, numbered
// along the line. At most `count` of them.
std::vector<std::uint32_t> cut_blocks(const Line& line, std::size_t count);

}  // namespace kerf::place
