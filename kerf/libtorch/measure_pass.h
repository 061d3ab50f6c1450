// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Passes over steps, each with a clock for every phase (forward, or forward and backward), made
// until their figures settle.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <vector>

#include "kerf/libtorch/neighbours.h"
#include "kerf/libtorch/samples.h"
#include "kerf/libtorch/step_clock.h"
#include "kerf/profile/profile.h"

namespace kerf {

using Clocks = std::vector<StepClock*>;  // one a phase
using Pass = std::function<void(const Clocks&)>;

// Samples have the figures of the phases, one after the other: phase p of step s is figure
// p * steps + s.

// The host's time, with a wait for the device after each step.
Samples sample_waiting(const Pass& pass, int phases, std::size_t steps, c10::Device device,
                       const SampleLimits& limits);
// The same, alone and while neighbours work: as many phases more.
Samples sample_beside(const Pass& pass, int phases, std::size_t steps, c10::Device device,
                      const SampleLimits& limits, Neighbours& neighbours);

// Both times of all steps of all phases, measured apart: on devices that can be held.
struct Apart {
  std::vector<IssueTimes> times;
  std::vector<Nanoseconds> spreads;  // of the one that spreads more
  int samples = 0;
};
Apart measure_apart(const Pass& pass, int phases, std::size_t steps, c10::Device device,
                    SampleLimits limits);

}  // namespace kerf
