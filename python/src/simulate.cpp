// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/simulate.h"

#include <pybind11/stl.h>

#include "python/src/interruptible.h"
#include "python/src/module.h"

namespace kerf::bindings {
namespace {

Timeline simulate_plan(const Plan& plan, std::optional<int> n_microbatches) {
  return n_microbatches ? simulate(plan, *n_microbatches) : simulate(plan);
}

}  // namespace

void init_simulate(py::module_& m) {
  m.def("simulate", interruptible(&simulate_plan), py::arg("plan"),
        py::arg("n_microbatches") = py::none(),
        "Simulates one step of the plan, event by event, optionally with another number of "
        "micro-batches.");
}

}  // namespace kerf::bindings
