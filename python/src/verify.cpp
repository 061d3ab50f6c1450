// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <pybind11/stl.h>

#include "kerf/verify/verify_plan.h"
#include "python/src/module.h"

namespace kerf::bindings {

void init_verify(py::module_& m) {
  py::class_<Violation>(m, "Violation", "A rule that a plan breaks.")
      .def_readonly("rule", &Violation::rule, "The name of the rule.")
      .def_readonly("message", &Violation::message, "What breaks it, and where.")
      .def("__repr__", [](const Violation& v) {
        return fmt::format("kerf.Violation({}: {})", v.rule, v.message);
      });
  m.def(
      "check_plan",
      [](const Graph& graph, const Plan& plan, const Profile* profile) {
        check_plan(graph, profile, plan);
      },
      py::arg("graph"), py::arg("plan"), py::arg("profile") = nullptr,
      py::call_guard<py::gil_scoped_release>(), "Raises ValueError unless the plan is sound.");
  m.def(
      "verify_plan",
      [](const Graph& graph, const Plan& plan, const Profile* profile) {
        return verify_plan(graph, profile, plan);
      },
      py::arg("graph"), py::arg("plan"), py::arg("profile") = nullptr,
      py::call_guard<py::gil_scoped_release>(),
      "Derives from the graph all that the plan claims; what it breaks, or nothing.");
}

}  // namespace kerf::bindings
