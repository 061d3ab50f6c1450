// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "kerf/graph/graph.h"

namespace kerf {

// Throws Error(invalid_argument) when the graph was traced in eval mode: what a training step costs
// and keeps cannot be told from it. The message begins with "[who]" ("profile.estimate") and names
// the modules and nodes that do something else in training.
void check_train_mode(const Graph& graph, std::string_view who);

}  // namespace kerf
