// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace kerf::bindings {

// Recordings of what a model calls, on tensors without data.
void init_recorder(pybind11::module_& m);

}  // namespace kerf::bindings
