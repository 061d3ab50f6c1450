// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// How a person writes an operator: `F.linear(x, w, b)` for aten.linear.default, by the table in
// spelling_table.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kerf/emit/codegen/code.h"
#include "kerf/graph/graph.h"

namespace kerf::codegen {

// A row of the table.
//
//   operator    aten.sum.dim_IntList
//   parameters  self dim=None keepdim=False dtype=None     in the schema's order, with those of
//   their
//                                                          values that may be left out, a|b
//   forms       self.sum(dim^?, keepdim=, dtype=)          separated by " || ": the first that can
//   say
//                                                          all that is not left out is taken
//
// In a form stand names of parameters: `x` always, `x?` and `x=` (by keyword) unless it is left
// out, `x==` always by keyword. Before the sign: `x~` a list of equal numbers as one, `x^` a list
// as a tuple, and of one item as that, `x&` as a tuple, `x%` a reduction by name; `*x` the items
// one by one. A form without brackets is an operator: `self + other`, `-self`, `self.T`, `self +=
// other`.
struct SpellingRow {
  std::string_view op;
  std::string_view parameters;
  std::string_view forms;
};
std::span<const SpellingRow> spelling_table();

// One argument of a call, as it will be written.
struct Spoken {
  Code code;
  bool tensor = false;       // a variable that holds a tensor
  bool local = false;        // a variable, rather than an attribute of something
  bool conditional = false;  // "a if self.training else b"
};

struct SpokenCall {
  std::string_view op;
  std::vector<Spoken> positional;
  std::vector<std::pair<std::string, Spoken>> named;
};

// The call in one of the forms of the table. Nothing where the table has no form that says all of
// it.
std::optional<Code> spell(const SpokenCall& call);

// What a parameter is when a call does not give it, by the table. Nothing where it does not say.
std::optional<std::string> preset_of(std::string_view op, std::size_t position);
// The name of the parameter at a position; empty where the table does not say.
std::string parameter_at(std::string_view op, std::size_t position);

// Does it give a list of tensors, even where that has one item?
bool gives_list(std::string_view packet);

}  // namespace kerf::codegen
