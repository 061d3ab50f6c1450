// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The text form of a graph: what `.graph` files hold and what tests are written in. Printing and
// parsing are exact inverses: parse(print(g)) == g and print(parse(t)) == t for printed t.
//
//   kerf-graph 1.1
//   graph "mlp"
//   batch 2
//   require B <= 64 ; source="mlp.py:5"
//   attribute "up" "scale" = 0.5
//   input %x: f32[B, 16] = "args.0"
//   weight @w: f32[32, 16] = parameter "up.weight"
//   %h: f32[B, 32] = aten.linear.default(%x, @w) ; source="mlp.py:7"
//   %r: f32[B, 32] in %h = aten.relu_.default(&%h)
//   output "logits" = %r
//
// See docs/formats.md for every form. Everything that can be left out has a default: strides are
// contiguous, a value owns its storage, the scope is the model.
#pragma once

#include <string>
#include <string_view>

#include "kerf/graph/graph.h"

namespace kerf {

std::string print_graph(const Graph& graph);
// Throws Error(invalid_graph) with `source`, line and column. Verifies and freezes.
Graph parse_graph(std::string_view text, std::string_view source = "graph");

// Files end with the line `end`: without it one was cut short, and is refused.
Graph load_graph(const std::string& path);
void save_graph(const Graph& graph, const std::string& path);

}  // namespace kerf
