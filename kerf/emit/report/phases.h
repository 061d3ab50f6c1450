// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "kerf/plan/timeline.h"

namespace kerf {

// "weight gradients" of Phase::weight_gradient: as people say it.
std::string_view words(Phase phase);

bool has_phase(const Timeline& timeline, Phase phase);

}  // namespace kerf
