// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kerf/base/stop_clock.h"
#include "kerf/place/refine/split_state.h"

namespace kerf::place {

// Hill climbing along the borders of a split: a unit of the busiest device joins the device of a
// neighbour, or changes places with a unit of that device, where the larger of both loads falls. A
// step that would exceed a memory is not taken. Ends when no step helps; `steps` bounds the units
// looked at.
void improve_borders(const Instance& units, SplitState& state, std::int64_t steps,
                     const StopClock& clock);

}  // namespace kerf::place
