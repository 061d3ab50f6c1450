// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kerf/emit/codegen/borders.h"
#include "kerf/emit/codegen/names.h"
#include "kerf/graph/graph.h"

namespace kerf::codegen {

// What the code of one stage calls each value: a variable, or the module's own weight. A result
// that is its argument, changed in place, has the argument's variable.
class StageNames {
 public:
  StageNames(const Graph& graph, const Border& border, Names& names);

  const std::string& text(ValueId id) const { return texts_.at(key(id)); }
  bool knows(ValueId id) const { return texts_.contains(key(id)); }
  bool is_local(ValueId id) const { return roots_.contains(key(id)); }
  // Variables are told apart by the value that they were made for.
  ValueId variable(ValueId id) const { return roots_.at(key(id)); }
  // Variables for modules with long names: "attention = self.model.layers[0]...", in order.
  const std::vector<std::string>& modules() const { return modules_; }

 private:
  std::string weight_text(std::string_view path, Names& names);
  static std::uint32_t key(ValueId id) { return static_cast<std::uint32_t>(id.index()); }

  std::unordered_map<std::uint32_t, std::string> texts_;
  std::unordered_map<std::uint32_t, ValueId> roots_;
  std::vector<std::string> modules_;
  std::unordered_map<std::string, std::string> module_names_;  // by path
};

// Throws Error(unsupported_operator) where the model has a parameter or module whose name the class
// Stage uses for something else.
void check_top_names(const Graph& graph);

// The argument that an in-place operator gives back as its result; invalid for all others.
ValueId changed_in_place(const Graph& graph, const Node& node);

// How the code of a stage reaches what the model calls "h.0.attn.weight": self.h[0].attn.weight
std::string attribute_text(std::string_view path);

// A constant of the graph in a stage's table: the last part of its name, each once in a file.
std::vector<std::string> constant_names(const Graph& graph);

}  // namespace kerf::codegen
