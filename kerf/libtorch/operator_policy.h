// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/function_schema.h>

#include <string>

namespace kerf {

// Why a graph may not call this operator; empty: it may. Graphs come from files, and files are
// data: an operator computes on tensors and touches nothing else. The rule:
//   - `aten`, `prims`, `quantized` and the like: all but those that read files, print, or exchange
//     a tensor's memory;
//   - PyTorch's other namespaces (c10d, symm_mem, profiler, inductor, ...): none. They talk to
//     other processes, to compilers, or take packed objects;
//   - namespaces that a program or a library has registered: all, since it chose to load them, but
//     those known for reading files and streams;
//   - nowhere an operator with a text that names a file, or with arguments that are no plain data.
std::string why_refused(const c10::FunctionSchema& schema);

}  // namespace kerf
