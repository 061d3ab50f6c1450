// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/phases.h"

#include <algorithm>

namespace kerf {

std::string_view words(Phase phase) {
  return phase == Phase::weight_gradient ? "weight gradients" : to_string(phase);
}

bool has_phase(const Timeline& timeline, Phase phase) {
  return std::any_of(timeline.events.begin(), timeline.events.end(),
                     [&](const Event& event) { return event.phase == phase; });
}

}  // namespace kerf
