// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/graph.h"

namespace kerf {

// Export writes down masks that a model leaves out when it runs by itself, and attention with a
// mask takes slower kernels and memory for all scores. Masks that no call can change are computed
// here, once: those that let everything through are left out, causal ones become is_causal=true.
// Windows, padding, biases, and masks too large to be looked at stay as they are. Heads that were
// repeated for the mask's sake are grouped again.
Graph fold_masks(const Graph& graph);

}  // namespace kerf
