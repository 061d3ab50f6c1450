// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "python/src/module.h"

PYBIND11_MODULE(_core, m) {
  using namespace kerf::bindings;
  m.doc() = "Kerf's C++ core: graphs, costs, plans. Use it through the package kerf.";
  m.attr("__version__") = KERF_VERSION;
  init_errors(m);
  init_graph(m);
  init_arguments(m);
  init_operator(m);
  init_capture(m);
  init_calls(m);
  init_device(m);
  init_profile(m);
  init_saved(m);
  init_timeline(m);
  init_plan(m);
  init_placement(m);
  init_simulate(m);
  init_memory(m);
  init_symbolic(m);
  init_verify(m);
  init_partition(m);
  init_fx(m);
  init_runtime(m);
  init_emit(m);
  init_watch(m);
}
