// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/runtime/batching.h"

namespace kerf {

// The batch size of a call, one tensor for each input of the graph; 0 where no input has a batch.
// `dims`: input_dims(graph). Throws Error(invalid_argument), naming the input, for one that is not
// as it was traced: another dtype, other sizes, sparse, without data, an empty batch, or another
// batch than the inputs before it have.
std::int64_t check_input_shapes(const Graph& graph, const std::vector<BatchDim>& dims,
                                const std::vector<at::Tensor>& inputs);

}  // namespace kerf
