// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/base/infinity.h"
#include "kerf/base/rng.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/acyclic/goal.h"
#include "kerf/place/instance.h"

namespace kerf::place::acyclic {

struct MoveOptions {
  int passes = 8;
  double patience = 0.05;        // of the vertices, and some: moves without gain before a pass ends
  double most_work = kInfinity;  // a pass ends early at it
};

// Improves a partition by moves of single vertices that keep it acyclic; never worsens it. Adds
// what it did to `work`.
void improve(const Instance& level, const Goal& goal, const MoveOptions& options, Split& part,
             Rng& rng, const StopClock* clock, double& work);

}  // namespace kerf::place::acyclic
