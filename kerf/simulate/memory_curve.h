// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kerf/plan/plan.h"
#include "kerf/plan/timeline.h"

namespace kerf {

// Bytes in use on each device through a simulated step, by kind, from the plan's own figures:
//   weights, gradients, optimizer   all the time
//   inputs        what a stage reads from other memories and from the caller, while it runs; of a
//                 backward the gradients that come from there
//   temporaries   what a stage allocates while it runs, workspace included; what it leaves for
//                 others, until all of them have run; gradients, until the maker's backward has
//   results       what a stage leaves that nobody uses, to the end of the step
//   saved         training: what a stage keeps, until its backward has run (or its gradients of
//                 weights, where they are apart). What it both leaves and keeps counts once.
// Devices without stages have no curve, nor has a plan without figures of memory.
//
// This is one timing; DeviceMemory::predicted holds for every timing, and is what is compared with
// limits: no point exceeds it. Complexity: events x log(events).
std::vector<MemoryCurve> memory_curves(const Plan& plan, const Timeline& timeline);

}  // namespace kerf
