// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/place/load_search.h"
#include "kerf/place/objective.h"

namespace kerf::place {

// What is asked of a split of a LoadProblem.
struct LoadRequest {
  std::string method = "auto";
  Objective objective = Objective::throughput;
  bool contiguous = false;  // only splits that are
  bool serial = false;      // latency: the pieces of a device one after the other
  LoadOptions options;
};

}  // namespace kerf::place
