// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Modules that run as they are: nodes with the operator "opaque".
#pragma once

#include <set>
#include <string>

#include "kerf/emit/codegen/value_text.h"
#include "kerf/graph/graph.h"

namespace kerf::codegen {

// The path of the module. Throws Error(invalid_graph) where there is none.
const std::string& block_path(const Graph& graph, NodeId node);
// Is there a B in its call? False for other nodes.
bool block_uses_batch(const Graph& graph, NodeId node);

struct BlockCall {
  Code call;                    // self.encoder.lstm(x, lengths)
  Code result;                  // a pattern of its result, with the names of the node's outputs
  bool lone = false;            // the result is one tensor, and needs no pattern
  std::set<std::string> kinds;  // of parts of both: PatternWriter::kinds
};
BlockCall block_call(const Graph& graph, NodeId node, const std::string& module,
                     const NameValue& name);

}  // namespace kerf::codegen
