// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/batch_flow/batch_flow.h"

namespace kerf::bindings {

// A verdict and the graph whose operator it names.
struct NamedVerdict {
  Graph graph;
  BatchVerdict verdict;
};

}  // namespace kerf::bindings
