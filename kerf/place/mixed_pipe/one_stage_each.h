// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kerf/place/load_search.h"

namespace kerf::place {

// The split with one stage a device that follows `device` (by unit) as closely as can be: a
// topological line on which the devices' units come one device after the other, as far as edges
// allow, cut best possible. No devices: no such split fits.
LoadAnswer one_stage_each(const Instance& units, std::span<const SlotId> device,
                          const LoadOptions& options);

}  // namespace kerf::place
