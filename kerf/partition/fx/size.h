// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The greedy behind mode size, and the starts that the searches share.
#pragma once

#include <optional>

#include "kerf/partition/fx/request.h"

namespace kerf::partition::fx {

// The greedy of the original. `compat` keeps its two faults: a partition whose nodes have no bytes
// takes a device again (U1), and one that fills what is left of a device is refused (K5).
// Throws OriginalError(runtime) when it gets stuck.
std::vector<Partition> greedy_by_size(const OpGraph& graph, std::span<const Device> devices,
                                      bool compat);

// That greedy with its faults mended, or with them where only that fits; nothing when neither does.
std::optional<std::vector<Partition>> by_size(const Request& request);

// Everything on the largest device, when it fits: the fewest devices there can be.
std::optional<Answer> all_on_one(const Request& request);

// The split by size and the intervals of two orders, for the searches.
class Search;
void add_usual_starts(const Request& request, Search& search);
// When those find no room: clusters, single ops where they end soonest or where most room is.
void add_last_starts(const Request& request, Search& search);

}  // namespace kerf::partition::fx
