// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kerf/plan/plan.h"

namespace kerf {

// What one method made of a problem.
struct ComparedMethod {
  std::string method;
  bool found = false;
  Plan plan;           // when found
  std::string reason;  // when not
  double cpu_seconds = 0;
};

// Several methods on one problem, in the order they were asked. The plans have the problem's
// objective, whatever the method minimises, and the strongest lower bound that any of them found
// without being stopped by the clock.
struct Comparison {
  Objective objective = Objective::throughput;
  LowerBound bound;
  std::vector<ComparedMethod> methods;
};

}  // namespace kerf
