// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/graph.h"

namespace kerf {

// Autograd frees what no result leads back to as soon as the model's code has let go of it: such
// calls keep nothing and have no backward, and are made calls without gradients here. Told by
// memory, so that writes through views count; inputs and weights outlive the call like results.
// Private to libtorch/symbolic. Linear time.
void drop_unreached(GraphData& data);

}  // namespace kerf
