// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Starts from orders: units are laid out in a line so that few tensors cross any point of it, and
// the line is cut best possible.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kerf/base/rng.h"
#include "kerf/base/stop_clock.h"
#include "kerf/place/refine/split_state.h"

namespace kerf::place {

// Grows from `first`: next comes the unit that leaves the cheapest set of open tensors behind, ties
// and near ties (`noise`, relative) by `rng`. Of a wide frontier only the latest units are looked
// at: O(units). Once the clock has struck, the rest follows as it comes.
std::vector<std::uint32_t> grow_order(const Instance& units, std::uint32_t first, double noise,
                                      const StopClock& clock, Rng& rng);
// Units as the producers of tensors reach them, depth first; cycles are cut where they close.
std::vector<std::uint32_t> reach_order(const Instance& units, Rng& rng);
// The unit found last by a breadth-first walk from `from`.
std::uint32_t far_unit(const Instance& units, std::uint32_t from);

// The split of the line into intervals, one for each device at most, whose largest load is least.
// Optimal for lines of up to kMaxBlocks units; longer ones are first cut into blocks of about
// equal time, that many or, of very large problems, fewer. Accelerators of more kinds than fit
// kMaxStates are taken as of fewer, each as slow and small as the worst of its kind. Nothing when
// no such split fits the memory, or when the clock has struck; maybe nothing when none has a max
// load below `limit`.
inline constexpr std::size_t kMaxBlocks = 400;
inline constexpr std::size_t kMaxStates = 128;
std::optional<std::vector<std::uint32_t>> cut_order(const Instance& units,
                                                    std::span<const std::uint32_t> order,
                                                    double limit, const StopClock& clock);

}  // namespace kerf::place
