// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kerf/graph/text.h"

namespace kerf {

// Two layers of 16 KiB each, at a batch of 4.
inline Graph small_graph() {
  return parse_graph(R"(kerf-graph 1.0
graph "mlp"
batch 4
input %x: f32[B, 64] = "args.0"
weight @v: f32[64, 64] = parameter "v"
weight @w: f32[64, 64] = parameter "w"
%a: f32[B, 64] = aten.linear.default(%x, @v)
%h: f32[B, 64] = aten.relu.default(%a)
%y: f32[B, 64] = aten.linear.default(%h, @w)
output "y" = %y
)");
}

}  // namespace kerf
