// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/graph/operator.h"

#include <pybind11/stl.h>

#include "kerf/graph/operator_effects.h"
#include "python/src/arguments.h"

namespace kerf::bindings {
namespace {

Operator make_operator(std::string name, const py::list& parameters, bool draws, bool one_tensor) {
  Operator op{std::move(name), {}, draws, one_tensor};
  for (const py::handle item : parameters) {
    const auto row = item.cast<py::tuple>();
    Parameter parameter;
    parameter.name = row[0].cast<std::string>();
    parameter.written = row[1].cast<bool>();
    parameter.aliased = row[2].cast<bool>();
    if (row.size() > 3) parameter.preset = to_argument(row[3]);
    op.parameters.push_back(std::move(parameter));
  }
  return op;
}

template <class Wanted>
auto names_where(Wanted wanted) {
  return [wanted](const Operator& op) {
    std::vector<std::string> out;
    for (const Parameter& parameter : op.parameters) {
      if (wanted(parameter)) out.push_back(parameter.name);
    }
    return out;
  };
}

bool draws(const Operator& op, const py::sequence& args, const py::dict& kwargs) {
  Node call;
  add_arguments(call, args, kwargs);
  return draws_numbers(op, call);
}

py::object hidden_writes(const std::string& packet) {
  const HiddenWrites* const found = find_hidden_writes(packet);
  if (found == nullptr) return py::none();
  return py::make_tuple(found->flag, std::vector<std::string_view>(found->parameters.begin(),
                                                                   found->parameters.end()));
}

std::string sharing_name(const std::string& packet) {
  switch (hidden_sharing(packet)) {
    case HiddenSharing::first: return "first";
    case HiddenSharing::any: return "any";
    case HiddenSharing::none: break;
  }
  return "none";
}

}  // namespace

void init_operator(py::module_& m) {
  py::class_<Operator>(m, "Operator", "What the schema of an operator says.")
      .def(py::init(&make_operator), py::arg("name"), py::arg("parameters"), py::arg("draws"),
           py::arg("one_tensor"))
      .def_readonly("name", &Operator::name)
      .def_property_readonly("packet", &Operator::packet)
      .def_property_readonly("parameters", names_where([](const Parameter&) { return true; }))
      .def_property_readonly("written", names_where([](const Parameter& p) { return p.written; }))
      .def_property_readonly("aliased", names_where([](const Parameter& p) { return p.aliased; }))
      .def("draws", &draws, py::arg("args"), py::arg("kwargs"));
  m.def("hidden_writes", &hidden_writes, py::arg("packet"),
        "The flag and the parameters that it makes an operator change; None where there are none.");
  m.def("hidden_sharing", &sharing_name, py::arg("packet"),
        "Which arguments results may share unsaid: 'none', 'first' or 'any'.");
}

}  // namespace kerf::bindings
