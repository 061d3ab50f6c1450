// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "kerf/base/outcome.h"
#include "kerf/place/lower_bound.h"
#include "kerf/place/residence/residence_problem.h"

namespace kerf {

struct ResidenceChoice {
  Residences residences;
  Nanoseconds time;  // of a call, see stream_time
  LowerBound bound;  // in nanoseconds
};

// What does not fit: at least so many bytes are needed, one slot among them.
struct ResidenceShortage {
  Bytes needed;
  Bytes memory;
  std::size_t largest = 0;  // the unit with the most bytes among those that cannot be elsewhere
};

// Which units stay on the device, which are streamed and which the host computes, so that a call
// takes as little time as possible; `memory` is never exceeded. The link's and the computing time
// are made as short as they can be together (exactly, unless many units are of several kinds), and
// units of one kind are spread so that the link is busy all the time. 10^5 units take less than a
// second.
Outcome<ResidenceChoice, ResidenceShortage> choose_residences(const ResidenceProblem& problem);

}  // namespace kerf
