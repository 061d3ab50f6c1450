// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/emit/report/phases.h"

#include <algorithm>

namespace kerf {

std::string_view words(Phase phase) {
  return phase == Phase::weight_gradient ? "weight gradients" : to_string(phase);
}

std::vector<Nanoseconds> stage_medians(const Timeline& timeline, Phase phase) {
  std::vector<std::vector<Nanoseconds>> times(static_cast<std::size_t>(timeline.num_stages));
  for (const Event& event : timeline.events) {
    if (event.kind != EventKind::compute || event.phase != phase) continue;
    times[event.stage.index()].push_back(event.end - event.start);
  }
  std::vector<Nanoseconds> out;
  for (std::vector<Nanoseconds>& of_stage : times) {
    const auto middle = of_stage.begin() + static_cast<std::ptrdiff_t>(of_stage.size() / 2);
    std::nth_element(of_stage.begin(), middle, of_stage.end());
    out.push_back(of_stage.empty() ? Nanoseconds{} : *middle);
  }
  return out;
}

bool has_phase(const Timeline& timeline, Phase phase) {
  return std::any_of(timeline.events.begin(), timeline.events.end(),
                     [&](const Event& event) { return event.phase == phase; });
}

}  // namespace kerf
