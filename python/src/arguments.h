// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Arguments of operators as Python objects: plain data, and marks for what plain Python objects
// cannot tell apart.
#pragma once

#include <string>

#include "kerf/graph/node.h"
#include "python/src/module.h"

namespace kerf::bindings {

struct Sym {
  std::string text;
};
struct Ref {
  std::uint32_t id;
};
struct DTypeMark {
  std::string name;
};

// Throws Error(invalid_graph): the tracer said something that a graph cannot hold.
[[noreturn]] void refuse_record(const std::string& found, const std::string& expected);

// They refuse what they do not know.
DType to_dtype(const std::string& name);
Expr to_expr(const py::handle& object);
Argument to_argument(const py::handle& object);
void add_arguments(Node& node, const py::sequence& args, const py::dict& kwargs);

py::object to_object(const Argument& argument);

}  // namespace kerf::bindings
