// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// How the model is called, and what it gives back, for the file that runs its stages.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "kerf/emit/codegen/code.h"
#include "kerf/graph/graph.h"

namespace kerf::codegen {

class Names;

// Names for the graph's inputs, after the parameters of the model's forward and where they stood in
// the call: "input_ids", "pair_0". Not made unique.
std::vector<std::string> input_names(const Graph& graph);

struct CallSpec {
  Code parameters;                 // a tuple of names that may be passed by position
  Code defaults;                   // a dictionary of plain values
  Code arguments;                  // a dictionary of patterns
  Code result;                     // a pattern
  std::set<std::string> kinds;     // of parts: PatternWriter::kinds
  bool result_uses_batch = false;  // the pattern of the result holds sizes in B
};

// Throws Error(unsupported_operator) for calls that change their arguments and for parts that no
// file can hold.
CallSpec call_spec(const Graph& graph, const Names& names);

}  // namespace kerf::codegen
