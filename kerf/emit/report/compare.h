// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/plan/timeline.h"

namespace kerf {

// Predicted against measured for people: the step, each device's busy time, each stage's median
// compute a micro-batch, each device's peak of memory where both have one, with the ratio measured
// / predicted. Of training by phase, and the phases' sums over all devices: where the two part.
// Throws Error(invalid_argument) when the two are not of the same graph, stages and devices.
std::string compare_timelines(const Timeline& predicted, const Timeline& measured);

}  // namespace kerf
