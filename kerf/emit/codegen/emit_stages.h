// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/graph/graph.h"
#include "kerf/plan/plan.h"

namespace kerf {

struct EmitOptions {
  bool explicit_del = true;  // `del` where a tensor is used for the last time
  // A tensor that several later stages use goes from each of them to the next, not from its maker
  // to all of them.
  bool relay = false;
};

// A plan's stages as one readable Python file that needs PyTorch and nothing else: a class a stage
// with the model's own names and weights, a dictionary that says what goes where, and `run`, which
// calls the stages one after the other. What the file holds is told in docs/codegen.md.
//
// With `eval`, a trace of the same call in eval mode beside a `graph` of train mode, the stages
// have both modes; otherwise they refuse the mode that was not traced.
//
// The plan must have been verified for this graph. Throws Error(invalid_plan) when it is another
// graph's, Error(unsupported_operator) for what a file cannot hold: calls that change objects, and
// traces whose modes have other operators.
std::string emit_stages(const Graph& graph, const Plan& plan, const Graph* eval = nullptr,
                        const EmitOptions& options = {});

}  // namespace kerf
