// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/emit/codegen/both_modes.h"
#include "kerf/emit/codegen/code.h"
#include "kerf/emit/codegen/stage_names.h"
#include "kerf/graph/graph.h"

namespace kerf::codegen {

// The call of a node's operator, as a person would write it or else as torch.ops has it. `modes`,
// when there are two, makes what differs an expression of `self.training`. Throws
// Error(unsupported_operator) for operators that no graph may call.
Code operator_call(const Graph& graph, NodeId node, const StageNames& names,
                   const ModeDifferences* modes);

}  // namespace kerf::codegen
