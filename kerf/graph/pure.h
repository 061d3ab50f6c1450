// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/graph.h"

namespace kerf {

// Does a run change no input and no weight?
bool leaves_nothing(const Graph& graph);

// Can a run be thrown away as if it had never been: does it change no input and no weight, draw no
// random numbers and call no Python?
bool is_pure(const Graph& graph);

}  // namespace kerf
