// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "python/src/module.h"

PYBIND11_MODULE(_core, m) {
  using namespace kerf::bindings;
  m.doc() = "Kerf's C++ core: graphs, costs, plans. Use it through the package kerf.";
  init_errors(m);
  init_graph(m);
  init_graph_builder(m);
}
