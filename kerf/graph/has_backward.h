// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/graph.h"

namespace kerf {

// Does the node have a backward: a result with a gradient, made where gradients are enabled?
bool has_backward(const Graph& graph, NodeId node);

}  // namespace kerf
