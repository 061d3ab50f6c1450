// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kerf/base/outcome.h"
#include "kerf/place/residence/choose_residences.h"

namespace kerf {

// As `memory` of a problem: whatever it takes.
inline constexpr Bytes kNoLimit{std::numeric_limits<std::int64_t>::max()};

// The slots for residences that somebody else has chosen: as few as make a call about as short as
// any number would. The bound is that of these residences.
Outcome<ResidenceChoice, ResidenceShortage> give_slots(const ResidenceProblem& problem,
                                                       std::vector<Residence> of);

}  // namespace kerf
