// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// kerf._core: the bindings of every room but libtorch, one init function a room.
#pragma once

#include <pybind11/pybind11.h>

#include "kerf/base/units.h"

namespace kerf::bindings {

namespace py = pybind11;

void init_errors(py::module_& m);
void init_graph(py::module_& m);
void init_arguments(py::module_& m);
void init_operator(py::module_& m);
void init_capture(py::module_& m);
void init_calls(py::module_& m);
void init_device(py::module_& m);
void init_profile(py::module_& m);
void init_saved(py::module_& m);
void init_symbolic(py::module_& m);
void init_plan(py::module_& m);
void init_placement(py::module_& m);
void init_timeline(py::module_& m);
void init_simulate(py::module_& m);
void init_memory(py::module_& m);
void init_verify(py::module_& m);
void init_partition(py::module_& m);
void init_fx(py::module_& m);
void init_runtime(py::module_& m);
void init_emit(py::module_& m);
void init_watch(py::module_& m);

// Python counts in seconds.
inline double seconds(Nanoseconds time) { return time.count * 1e-9; }

}  // namespace kerf::bindings
