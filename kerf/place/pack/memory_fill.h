// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Splits that fit the memory, for searches to start from.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/instance.h"

namespace kerf::place {

// Large units first, each on the accelerator with room that is done with it first, else on the CPU.
// Other orders are tried when that fails, and at last all packings of small problems (bin packing:
// it may fail although a split fits). Tries a few orders even when the clock has struck.
std::optional<Split> fill_memory(const Instance& units, const StopClock& clock, Rng& rng);

// Units in random order on random accelerators with room, else as fill_memory.
std::optional<Split> random_fill(const Instance& units, const StopClock& clock, Rng& rng);

}  // namespace kerf::place
