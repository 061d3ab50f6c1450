// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/graph.h"

namespace kerf {

// Checks that `data` is a well-formed graph: ids in range, names unique, every use after its
// definition, shapes and strides of one rank, views inside their storage and made from a value of
// it, weights of fixed size, a static graph without B, written and aliased values among the node's
// own inputs, nothing that the text form cannot say. Throws Error(invalid_graph) that names the
// first offender. Graph::freeze calls it. Sizes are checked at the example batch.
void verify_graph(const GraphData& data);

}  // namespace kerf
