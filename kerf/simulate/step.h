// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The figures of a step without its events: what simulate() (simulate.h has the rules) would find,
// in time that hardly depends on the number of micro-batches.
#pragma once

#include "kerf/plan/plan.h"

namespace kerf {

struct StepFigures {
  Nanoseconds end;    // of the last event: the step time
  double bubble = 0;  // as Timeline::bubble
};

// The same as the timeline's, but for rounding (1e-9 of the value). Throws as simulate does.
//
// Complexity: stages and cuts, for as many micro-batches as it takes until every device goes on at
// a steady pace; then the paces say when the next of them comes to wait for another, and all in
// between is skipped. `overlapped` transfers and shared links: all micro-batches.
StepFigures simulate_step(const Plan& plan, int n_microbatches);

}  // namespace kerf
