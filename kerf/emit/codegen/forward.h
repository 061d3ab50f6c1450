// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>
#include <vector>

#include "kerf/emit/codegen/borders.h"
#include "kerf/emit/codegen/both_modes.h"
#include "kerf/emit/codegen/code.h"
#include "kerf/emit/codegen/names.h"
#include "kerf/graph/graph.h"

namespace kerf::codegen {

struct ForwardContext {
  const Graph& graph;
  Names& names;
  const ModeDifferences* modes;             // null: one mode
  const std::vector<std::uint32_t>& again;  // by node: 0, or the block that is computed again
  bool explicit_del = true;
};

// Adds the method `forward` of a stage: straight-line code, in the order of the graph, with a
// comment where another module begins and, for explicit_del, `del` where a tensor is used for the
// last time. Returns the kinds of helpers that it uses: "checkpoint", "keeping", "unpack", and
// those of PatternWriter.
std::set<std::string> write_forward(const ForwardContext& context, const Border& border,
                                    Lines& lines);

}  // namespace kerf::codegen
