// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kerf/emit/codegen/borders.h"
#include "kerf/emit/codegen/both_modes.h"
#include "kerf/emit/codegen/code.h"
#include "kerf/emit/codegen/names.h"

namespace kerf::codegen {

// The docstring of the file: which stage runs what where, and what a reader has to know.
std::string head_text(const Graph& graph, const Plan& plan, const Borders& borders,
                      const ModeDifferences* modes);

// "transformer.wte .. transformer.h.0, on cpu:0"
std::string stage_title(const Graph& graph, const Plan& plan, StageId stage);

// The functions that look at the sizes of a call: check_inputs, and batch_of where there is a
// batch.
void write_input_check(const Graph& graph, const Names& names, const ModeDifferences* modes,
                       Lines& lines);

}  // namespace kerf::codegen
