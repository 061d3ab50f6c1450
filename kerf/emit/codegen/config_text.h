// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/emit/codegen/borders.h"
#include "kerf/emit/codegen/code.h"
#include "kerf/emit/codegen/names.h"

namespace kerf::codegen {

// "def config(B=2):" and what it returns: what goes where, with the sizes of a batch of B.
void write_config(const Graph& graph, const Plan& plan, const Borders& borders, const Names& names,
                  Lines& lines);

}  // namespace kerf::codegen
