// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Units merged into fewer: what no good plan can separate, and what a coarse search may move as
// one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/coarsen/contraction.h"

namespace kerf::place {

// Merges what every split with a max load below `limit` keeps together: two units that, held apart,
// bring the device of one of them to the limit by their times and the tensors they share, whichever
// devices those are. Repeated until nothing more merges. Memory only ever forbids more, so it stays
// sound; a clock that strikes only leaves more units.
Contraction contract_uncuttable(const Instance& problem, double limit, const StopClock& clock);

// Merges neighbours by tensor cost against their times until `target` units are left or none may
// merge; a merged unit stays below `most` time, and on one device of `device` unless that is empty.
// For coarse searches: good plans may be lost.
Contraction coarsen(const Instance& problem, std::size_t target, double most,
                    std::span<const SlotId> device, const StopClock& clock, Rng& rng);

}  // namespace kerf::place
