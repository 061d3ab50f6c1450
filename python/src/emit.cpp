// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include <pybind11/stl.h>

#include "kerf/base/file.h"
#include "kerf/emit/codegen/emit_stages.h"
#include "kerf/emit/codegen/spelling.h"
#include "kerf/verify/verify_plan.h"
#include "python/src/module.h"

namespace kerf::bindings {
namespace {

std::string emit_checked(const Graph& graph, const Plan& plan, const Graph* eval, bool explicit_del,
                         bool relay) {
  check_plan(graph, nullptr, plan);
  return emit_stages(graph, plan, eval, {.explicit_del = explicit_del, .relay = relay});
}

void emit_file(const Graph& graph, const Plan& plan, const Graph* eval, const std::string& path,
               bool overwrite, bool explicit_del, bool relay) {
  check_writable(path, overwrite);  // before the work
  write_file(path, emit_checked(graph, plan, eval, explicit_del, relay));
}

}  // namespace

void init_emit(py::module_& m) {
  m.def("emit_stages", &emit_checked, py::arg("graph"), py::arg("plan"),
        py::arg("eval_graph") = nullptr, py::arg("explicit_del") = true, py::arg("relay") = false,
        py::call_guard<py::gil_scoped_release>(), "The plan's stages as Python code.");
  m.def("emit_file", &emit_file, py::arg("graph"), py::arg("plan"), py::arg("eval_graph"),
        py::arg("path"), py::arg("overwrite"), py::arg("explicit_del") = true,
        py::arg("relay") = false, py::call_guard<py::gil_scoped_release>());
  m.def("check_writable", &check_writable, py::arg("path"), py::arg("overwrite"),
        "Raises OSError where a file is there that may not be overwritten.");
  m.def(
      "spelling_table",
      [] {
        std::vector<std::pair<std::string, std::string>> out;
        for (const codegen::SpellingRow& row : codegen::spelling_table()) {
          out.emplace_back(row.op, row.parameters);
        }
        return out;
      },
      "(operator, parameters with their presets) of every operator that has a spelling.");
}

}  // namespace kerf::bindings
