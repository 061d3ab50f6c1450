// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// A line of units cut into runs, the best for what is asked of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kerf/base/stop_clock.h"
#include "kerf/place/instance.h"

namespace kerf::place {

enum class CutAim : std::uint8_t {
  least_max,  // load of a device, one run each at most
  least_sum,  // of all runs' times: the latency when nothing runs side by side. An accelerator has
              // one run at most, the CPU pays for no tensors and may have many
};

// The split of the line that reaches its aim. With least_max, optimal for lines of up to kMaxBlocks
// units; longer ones are first cut into blocks of about equal time, that many or, of very large
// problems, fewer. Accelerators of more classes than fit kMaxStates are taken as of fewer, each as
// slow and small as the worst of its class. Nothing when no such split fits the memory, or when the
// clock has struck; maybe nothing when none has a max load below `limit`.
inline constexpr std::size_t kMaxBlocks = 400;
inline constexpr std::size_t kMaxStates = 128;
std::optional<Split> cut_order(const Instance& units, std::span<const UnitId> order, double limit,
                               const StopClock& clock, CutAim aim = CutAim::least_max);

}  // namespace kerf::place
