// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/function_schema.h>

#include <vector>

#include "kerf/graph/graph.h"

namespace kerf {

// The arguments of a node by the schema's parameters; null: not given. Throws
// Error(unsupported_operator) that names the node when one is unknown, given twice or missing.
std::vector<const Argument*> match_arguments(const Graph& graph, NodeId node,
                                             const c10::FunctionSchema& schema);

// Does the call fit the schema: the type of every argument, the number and types of results, and
// whatever memory it changes or shares? A graph that comes from a file may say anything, and an
// operator that is called with the wrong types ends the process. Throws Error(unsupported_operator)
// that names node, argument, what was found and what was expected.
void check_call(const Graph& graph, NodeId node, const c10::FunctionSchema& schema,
                const std::vector<const Argument*>& given);

// An opaque block's first argument: its tensors, one list.
const Argument::List& check_opaque_call(const Graph& graph, NodeId node);

}  // namespace kerf
