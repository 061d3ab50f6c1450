// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kerf/partition/raise/place.h"

namespace kerf::partition {

struct PolishOptions {
  double seconds = 1;  // fixes the number of plans tried
  double clock = 0;    // seconds until the safety stop; 0: twice as many
  std::uint64_t seed = 0;
};

// Improves the best plan for the problem's own objective: a unit joins the device of a neighbour, a
// stage goes to another device, two devices change places. Every step is judged by a whole plan,
// simulation and memory included. False: its plans were used up, or the clock stopped it.
bool polish(const Problem& problem, const SplitModel& model, BestPlan& best,
            const PolishOptions& options);

}  // namespace kerf::partition
