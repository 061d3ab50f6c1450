// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What the backward of an operator allocates. Private to simulate/step_memory.
#pragma once

#include <cstdint>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// Is the gradient of this argument that of the result, or a view of it? Otherwise it is a tensor of
// its own.
bool passes_gradient(const Graph& graph, NodeId node, ValueId argument, std::int64_t batch);

// What a kernel of an accelerator needs beside its arguments and results while it runs. Zero where
// nothing is known.
using Workspaces = std::vector<Bytes>;  // alive together
Bytes forward_workspace(const Graph& graph, NodeId node, std::int64_t batch);
// While it makes the gradient of that argument.
Workspaces gradient_workspaces(const Graph& graph, NodeId node, ValueId argument,
                               std::int64_t batch);
// While the engine adds up the gradient of an argument that was spread over the result: it does so
// when the operator's backward has made all gradients at the result's size.
Workspaces sum_workspaces(const Graph& graph, NodeId node, ValueId argument, std::int64_t batch);

// What PyTorch's reduction kernel keeps between thread blocks when it adds up `rows` rows of
// `columns` numbers of four bytes: Reduce.cuh of PyTorch 2.11.
Bytes reduction_buffer(std::int64_t rows, std::int64_t columns);

// Does it run on the library of matrix products, which takes a workspace of its own?
bool uses_matrix_library(const Graph& graph, NodeId node);

}  // namespace kerf
