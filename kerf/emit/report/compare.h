// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/plan/timeline.h"

namespace kerf {

// Predicted against measured for people: the step, each device's busy time, each stage's median
// compute a micro-batch, with the ratio measured / predicted. Throws Error(invalid_argument) when
// the two are not of the same graph, stages and devices.
std::string compare_timelines(const Timeline& predicted, const Timeline& measured);

}  // namespace kerf
