// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What no plan can beat. Each bound is a value with the sentence
// that proves it; all hold for any placement, contiguous or not. partition/search/ has stronger
// ones that cost more. place/bound has work, unit and memory bounds of an Instance; these are of
// the graph itself, with its links and shared weights, in time that a million nodes can afford.
#pragma once

#include <vector>

#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"

namespace kerf::partition {

// Of the busiest device:
// work:     the devices together do all of it.
// unit:     nodes glued together run on one device.
// receive:  a device that starts with nothing of its own receives a tensor (comm_model `link`).
// memory:   a device does no more than what fits into its memory.
// Linear but for sorting.
std::vector<LowerBound> throughput_bounds(const Problem& problem);
// Of the problem's objective: the above for `throughput`; the longest path for `latency`; these two
// for `step`; for `memory` weights and their largest piece.
std::vector<LowerBound> lower_bounds(const Problem& problem);
// Of the problem's objective.
LowerBound best_lower_bound(const Problem& problem);

}  // namespace kerf::partition
