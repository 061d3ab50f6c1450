// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "kerf/plan/timeline.h"

namespace kerf {

// "weight gradients" of Phase::weight_gradient: as people say it.
std::string_view words(Phase phase);

// The median of a stage's computes in a phase, so that one interrupted micro-batch does not colour
// them all. By stage; 0 where it does nothing in that phase.
std::vector<Nanoseconds> stage_medians(const Timeline& timeline, Phase phase);

bool has_phase(const Timeline& timeline, Phase phase);

}  // namespace kerf
