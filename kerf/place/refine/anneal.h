// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Simulated annealing of a split: moves and swaps of units under a smooth stand-in for the max
// load.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/refine/split_state.h"

namespace kerf::place {

// Energy: log(sum over devices of speed x exp(sharpness x load / best)) / sharpness, in units of
// the best load. A low sharpness looks at the sum of the loads, so at communication; a high one at
// the busiest device alone. Both run from first to last geometrically.
struct AnnealSchedule {
  double first_heat = 2e-3;
  double last_heat = 1e-5;
  double first_sharpness = 4;
  double last_sharpness = 64;
  std::int64_t work = 0;  // counted: see Annealed::work
};

struct Annealed {
  std::vector<SlotId> device;  // the best met, the start included
  double busiest = 0;
  std::int64_t work = 0;  // one for each net looked at, and kWorkPerProposal for each proposal
};
inline constexpr std::int64_t kWorkPerProposal = 8;

// `start` must respect the memory; so does every split met. Returns early when the max load reaches
// `good_enough`.
Annealed anneal(const Instance& units, std::span<const SlotId> start,
                const AnnealSchedule& schedule, double good_enough, const StopClock& clock,
                Rng& rng);

}  // namespace kerf::place
