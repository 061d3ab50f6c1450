// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "kerf/graph/graph.h"
#include "kerf/profile/profile.h"

namespace kerf {

// Costs from shapes (profile/estimate), as every face asks for them: `kind` is the name of a kind
// of device, and a batch of 0 the traced example's. Throws Error(invalid_argument) for a kind that
// nobody knows and for a batch that the graph's conditions rule out.
Profile estimate_costs(const Graph& graph, const std::string& kind, std::int64_t batch,
                       bool training);

}  // namespace kerf
