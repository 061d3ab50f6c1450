// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Splits that fit the memory, for searches to start from.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/partition/refine/split_state.h"

namespace kerf::partition {

// Large units first, each on the accelerator with the least time so far that has room, else on the
// CPU. Without a CPU, other orders are tried when that fails (bin packing: it may fail although a
// split fits).
std::optional<std::vector<std::uint32_t>> fill_memory(const FlatUnits& units, Rng& rng);

// Units in random order on random accelerators with room, else as fill_memory.
std::optional<std::vector<std::uint32_t>> random_fill(const FlatUnits& units, Rng& rng);

}  // namespace kerf::partition
