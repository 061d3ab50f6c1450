// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>

#include "kerf/graph/graph.h"

namespace kerf {

// Throws Error(run_failed), naming the value, its node and both shapes, when what was made for
// `value` has another shape than the graph says it has at this batch: operators such as squeeze may
// do another thing at another size. `dtype_too`: or another dtype; autocast that the caller has on
// changes those.
void check_made(const Graph& graph, ValueId value, const c10::IValue& made, std::int64_t batch,
                bool dtype_too);

}  // namespace kerf
