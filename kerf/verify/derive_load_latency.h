// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// One sample's latency in a split of a published problem, from the definition
// (place/load_problem.h: find_latency). Private to verify/.
#pragma once

#include <cstdint>
#include <span>

#include "kerf/place/load_problem.h"

namespace kerf::derive {

// Infinite when pieces of accelerators wait for each other in a circle. Edges must make none.
//
// Complexity: edges x devices.
double derive_load_latency(const LoadProblem& problem, std::span<const SlotId> device, bool serial);

}  // namespace kerf::derive
