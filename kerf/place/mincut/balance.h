// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// How much compute a device can hold below a limit: the reward for compute at which the Lagrangian
// bound is best.
#pragma once

#include <span>

#include "kerf/place/mincut/cut_network.h"
#include "kerf/place/mincut/device_cut.h"

namespace kerf::place {

enum class Hold : std::uint8_t { open, here, elsewhere };

// Any set with load below `limit` has compute at most this: load - reward * compute >= least. The
// reward is not 0.
Flow most_compute(const DeviceCut& cut, Flow limit);

// The device with the reward that makes `most_compute` smallest, settled; held and forbidden
// units as in `hold` (by unit). A few minimum cuts from scratch.
DeviceCut tune_reward(const CutNetwork& network, const DeviceKind& kind, std::span<const Hold> hold,
                      Flow limit, FlowScratch& scratch);

}  // namespace kerf::place
