// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/passes/captured.h"

namespace kerf {

// The graph without the nodes whose results nobody uses. A node that writes, that draws random
// numbers, or whose operator is not PyTorch's own has an effect, and stays.
Graph remove_unused(GraphData data);
// The same among captured calls, where the checks that export adds go too. Runs after
// find_effects().
void remove_unused(Captured& captured);

}  // namespace kerf
