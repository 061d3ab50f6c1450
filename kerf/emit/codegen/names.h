// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kerf/graph/graph.h"

namespace kerf::codegen {

// Python names for the values of a graph, each once in a file, so that what a stage gives has the
// name under which another takes it: the module whose result it is ("c_attn"), or else the operator
// ("view_3"). Inputs are named as the model's forward names them.
class Names {
 public:
  explicit Names(const Graph& graph);

  const std::string& of(ValueId id) const { return names_[id.index()]; }
  // Another name that no value has: "block_h_0".
  std::string make(std::string_view wanted);

 private:
  void name_inputs(const Graph& graph);
  void name_results(const Graph& graph, NodeId node);

  std::vector<std::string> names_;  // by value
  std::unordered_set<std::string> used_;
  std::unordered_map<std::string, int> numbers_;  // by base: the last that was tried
};

// "c_attn" of "transformer.h.0.attn.c_attn", "h_0" of "transformer.h.0".
std::string last_name(std::string_view path);

}  // namespace kerf::codegen
