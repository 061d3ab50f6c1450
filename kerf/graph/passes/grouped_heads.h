// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/graph.h"

namespace kerf {

// Models with fewer heads of keys than of queries repeat keys and values in memory when attention
// is given a mask, and say enable_gqa=true when it is not. Attention without a mask, which may have
// lost it to a pass, is told so here, and the repeats are gone. The same numbers: enable_gqa means
// just these repeats.
Graph group_heads(const Graph& graph);

}  // namespace kerf
