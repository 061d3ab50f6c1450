// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "kerf/plan/timeline.h"

namespace kerf {

// The trace-event format that chrome://tracing and ui.perfetto.dev read: a process for each
// timeline (named by its origin), a thread for each device, a counter for each memory curve with a
// series for each kind of memory. An event's categories are its kind and its phase
// ("compute,backward"), and each phase has a colour. Several timelines, say simulated and measured,
// lie one under the other.
std::string chrome_trace(std::span<const Timeline> timelines);
std::string chrome_trace(const Timeline& timeline);

}  // namespace kerf
