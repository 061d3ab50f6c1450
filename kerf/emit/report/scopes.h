// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kerf/graph/graph.h"
#include "kerf/plan/plan.h"

namespace kerf {

// For each stage the modules it runs from and to, in the user's own names: "transformer.wte ..
// transformer.h.5". A module is named by itself when all of its nodes are in the stage, else by the
// submodule that is. Empty for a stage whose nodes stand in no module.
// Throws Error(invalid_plan) when the plan is of another graph.
std::vector<std::string> scope_ranges(const Plan& plan, const Graph& graph);

}  // namespace kerf
