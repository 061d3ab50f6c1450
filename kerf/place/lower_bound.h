// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kerf {

// A value that no plan of a problem is below, with the sentence that proves it.
struct LowerBound {
  std::string name;
  double value = 0;  // of the objective, in the problem's unit
  std::string argument;
  friend bool operator==(const LowerBound&, const LowerBound&) = default;
};

// The largest; a gain below rounding is none, and the first argument stays. Not of none.
LowerBound tightest(const std::vector<LowerBound>& bounds);

// A bound above the value of a plan proves nothing but a fault of Kerf's. Throws Error(internal)
// with both figures; what rounding explains is none.
void check_bound(const LowerBound& bound, double value);

// What rounding may have added to a sum of so many numbers is taken off: a bound errs downwards
// alone.
double shaved(double bound, std::size_t terms);

}  // namespace kerf
