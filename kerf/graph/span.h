// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kerf/graph/node.h"

namespace kerf {

// A run of nodes that a user sees as one: a node of an FX graph is a span of ATen calls. Spans of a
// graph follow each other without gaps, in the order of its nodes; they may be empty.
struct Span {
  std::string name;                   // "layer1_0_conv1"
  std::string kind;                   // "call_module", "placeholder", ...
  std::string target;                 // "layer1.0.conv1", "torch.nn.functional.relu"
  NodeId first{0};                    // of its nodes
  NodeId last{0};                     // one past them
  std::vector<ValueId> inputs = {};   // tensors it was given, as the user's code names them
  std::vector<ValueId> outputs = {};  // tensors it returned
  std::vector<ValueId> weights = {};  // parameters and buffers that it holds or was given
  friend bool operator==(const Span&, const Span&) = default;
};

}  // namespace kerf
