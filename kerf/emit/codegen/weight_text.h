// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/emit/codegen/borders.h"
#include "kerf/emit/codegen/code.h"
#include "kerf/graph/graph.h"

namespace kerf::codegen {

// The tables of a stage's class: what it owns of the model ("WEIGHTS = [...]"), and the numbers
// that the model's code has written into it ("CONSTANTS = {...}").
Code weight_table(const Graph& graph, const Border& border);
Code constant_table(const Graph& graph, const Border& border);

// A tensor with these numbers: torch.tensor(0.5), or the bytes as text where there are many.
// Throws Error(invalid_graph) where there are too few.
Code constant_tensor(const Value& value, const Weight& weight);

}  // namespace kerf::codegen
