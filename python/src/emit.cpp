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

std::string emit_checked(const Graph& graph, const Plan& plan, const Graph* eval) {
  check_plan(graph, nullptr, plan);
  return emit_stages(graph, plan, eval);
}

void emit_file(const Graph& graph, const Plan& plan, const Graph* eval, const std::string& path,
               bool overwrite) {
  check_writable(path, overwrite);  // before the work
  write_file(path, emit_checked(graph, plan, eval));
}

}  // namespace

void init_emit(py::module_& m) {
  m.def("emit_stages", &emit_checked, py::arg("graph"), py::arg("plan"),
        py::arg("eval_graph") = nullptr, py::call_guard<py::gil_scoped_release>(),
        "The plan's stages as Python code.");
  m.def("emit_file", &emit_file, py::arg("graph"), py::arg("plan"), py::arg("eval_graph"),
        py::arg("path"), py::arg("overwrite"), py::call_guard<py::gil_scoped_release>());
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
