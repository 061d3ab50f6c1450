// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/graph.h"

namespace kerf {

// Puts values in the order in which they are made: inputs, weights, results of nodes. Values that
// nobody makes are left out.
void renumber_values(GraphData& data);

}  // namespace kerf
