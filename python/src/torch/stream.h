// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

namespace kerf::bindings {

// Checkpoints that are mapped, and weights that are streamed from them.
void init_stream(pybind11::module_& m);

}  // namespace kerf::bindings
