// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Units laid out one after the other, and what it costs to cut the line at each place.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/place/instance.h"

namespace kerf::place {

struct Line {
  Order order;                        // units
  std::vector<double> weight_before;  // by place, and one more; 1 at the end
  std::vector<double> crossing;       // by place: cost of the tensors with units on both sides
};

// A unit weighs its share of all time or of all memory, whichever is larger: pieces of equal weight
// are small in both.
Line make_line(const Instance& units, Order order);

// The model's own order: by number as far as edges allow.
Line own_line(const Instance& units);
// Topological lines of the problem's units, the first its own. Groups of units that depend on each
// other stay together.
std::vector<Line> topological_lines(const Instance& units);

}  // namespace kerf::place
