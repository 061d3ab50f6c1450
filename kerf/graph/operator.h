// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kerf/graph/node.h"

namespace kerf {

// "aten.dropout" of "aten.dropout.default".
std::string_view packet_of(std::string_view op);

// Before the name of a Python function with a backward of its own: a call that computes nothing
// forward, as libtorch/symbolic writes it down.
inline constexpr std::string_view kPythonFunction = "kerf.python_function.";

struct Parameter {
  std::string name;
  std::optional<Argument> preset;  // what a call that gives none takes
  bool written = false;            // changed in place
  bool aliased = false;            // a result may lie in its memory
};

// What PyTorch's schema says of an operator. The core has no schemas: whoever has PyTorch states
// them, and says nothing of single calls. What follows for a call is in operator_effects.h.
struct Operator {
  std::string name;  // "aten.dropout.default"
  std::vector<Parameter> parameters;
  bool draws = false;       // may take numbers from the random stream
  bool one_tensor = false;  // gives one tensor, neither several nor a list of them

  std::string_view packet() const { return packet_of(name); }
};

using Operators = std::unordered_map<std::string, Operator>;  // by name

// What a call gives for a parameter; nullptr when it gives nothing.
const Argument* find_given(const Operator& op, const Node& call, std::string_view parameter);
// The same, or the parameter's preset.
const Argument* find_bound(const Operator& op, const Node& call, std::string_view parameter);

}  // namespace kerf
